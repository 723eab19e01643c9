// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

Tensor cov(const Tensor& a, double correction, const std::optional<Tensor>& frequencies,
           const std::optional<Tensor>& weights) {
  check_tensor("cov", a);
  if (a.ndim() > 2) fail("cov: tensor is ", a.shape(), ", expected at most 2 dims");
  const Tensor rows = atleast_2d(a);
  for (const auto& given : {frequencies, weights}) {
    if (!given || given->shape() == Shape{rows.size(1)}) continue;
    fail("cov: weights are ", given->shape(), ", expected ", rows.size(1), ", one an observation");
  }
  const DType dtype = is_floating(rows.dtype()) ? rows.dtype() : DType::f32;
  Tensor w = frequencies ? cast(*frequencies, dtype)
                         : slice(ones_like(cast(rows, dtype)), 0, 0, 1).detach();
  w = reshape(w, {1, rows.size(1)});
  if (weights) w = mul(w, cast(*weights, dtype));
  const Tensor total = sum(w);
  const Tensor mean_of_rows = div(sum(mul(rows, w), {1}, true), total);
  const Tensor centred = sub(rows, mean_of_rows);
  const Tensor reduced =
      weights ? mul(div(sum(mul(w, *weights)), total), correction) : next_to(total, correction);
  const Tensor products =
      div(matmul(mul(centred, w), centred.transpose(0, 1)), clip(sub(total, reduced), 0));
  return rows.size(0) == 1 ? reshape(products, {}) : products;
}

Tensor renorm(const Tensor& a, double p, int dim, double most) {
  const int at = checked_dim("renorm", a, dim);
  if (!(p > 0)) fail("renorm: p is ", p, ", expected above 0");
  if (!(most >= 0)) fail("renorm: most is ", most, ", expected at least 0");
  std::vector<int> others;
  for (int d = 0; d < a.ndim(); ++d) {
    if (d != at) others.push_back(d);
  }
  const Tensor norms = others.empty() ? abs(a) : vector_norm(a, p, others, true);
  constexpr double kEps = 1e-7;  // PyTorch's
  const Tensor scaled = mul(a, div(most, add(norms, kEps)));
  return where(greater(norms, most), scaled, a);
}

/// Slopes between neighbours along the dim and the steps between them, or the even step.
struct Slopes {
  Tensor slopes, steps;
};

static Slopes slopes_of(const Tensor& a, const Operand& spacing, int dim) {
  const Tensor differences = diff(a, dim);
  if (spacing.is_number()) return {div(differences, spacing.number), {}};
  if (spacing.tensor.ndim() == 0) return {div(differences, spacing.tensor), {}};
  Tensor steps = diff(spacing.tensor);
  if (steps.ndim() != 1 || steps.size(0) != differences.size(dim)) {
    fail("gradient: coordinates of dim ", dim, " are ", spacing.tensor.shape(), ", expected ",
         a.size(dim));
  }
  for (int d = dim + 1; d < a.ndim(); ++d) steps = unsqueeze(steps, -1);
  return {div(differences, steps), steps};
}

static Tensor derivative(const Tensor& a, const Operand& spacing, int dim, int edge_order) {
  const Slopes found = slopes_of(a, spacing, dim);
  const Tensor &slopes = found.slopes, steps = found.steps;
  const int64_t n = a.size(dim);
  const auto part = [&](int64_t from, int64_t to) { return slice(slopes, dim, from, to); };
  const Tensor before = part(0, n - 2), after = part(1, n - 1);
  Tensor inside = mul(add(before, after), 0.5);
  if (steps) {
    const Tensor h = slice(steps, 0, 0, n - 2), k = slice(steps, 0, 1, n - 1);
    inside = div(add(mul(k, before), mul(h, after)), add(h, k));
  }
  Tensor first = part(0, 1), last = part(n - 2, n - 1);
  if (edge_order == 2) {
    // The slope of the parabola through three points at its end.
    const auto edge = [&](int64_t near, int64_t far) {
      const Tensor s = part(near, near + 1), t = part(far, far + 1);
      if (!steps) return sub(mul(s, 1.5), mul(t, 0.5));
      const Tensor h = slice(steps, 0, near, near + 1);
      const Tensor k = slice(steps, 0, far, far + 1);
      return add(s, div(mul(sub(s, t), h), add(h, k)));
    };
    first = edge(0, 1);
    last = edge(n - 2, n - 3);
  }
  return cat({first, inside, last}, dim);
}

Tensors gradient(const Tensor& a, const std::vector<Operand>& spacing, const std::vector<int>& dims,
                 int edge_order) {
  check_tensor("gradient", a);
  if (edge_order != 1 && edge_order != 2) {
    fail("gradient: edge_order is ", edge_order, ", expected 1 or 2");
  }
  std::vector<int> all = dims;
  if (dims.empty()) {
    for (int d = 0; d < a.ndim(); ++d) all.push_back(d);
  }
  if (spacing.size() > 1 && spacing.size() != all.size()) {
    fail("gradient: number of spacings is ", spacing.size(), ", expected 1 or ", all.size());
  }
  const Tensor x = is_floating(a.dtype()) ? a : cast(a, DType::f32);
  Tensors made;
  for (size_t i = 0; i < all.size(); ++i) {
    const int at = normalized_dim("gradient", all[i], a.ndim());
    if (a.size(at) <= edge_order) {
      fail("gradient: size of dim ", at, " is ", a.size(at), ", expected at least ",
           edge_order + 1);
    }
    const Operand own = spacing.empty() ? Operand(1) : spacing[spacing.size() == 1 ? 0 : i];
    made.push_back(derivative(x, own, at, edge_order));
  }
  return made;
}

/// Scaling and squaring, in f64: Taylor's series of a / 2^s, whose 1-norm is at most 1.
Tensor matrix_exp(const Tensor& a) {
  check_tensor("matrix_exp", a);
  if (a.ndim() < 2 || a.size(a.ndim() - 1) != a.size(a.ndim() - 2) || !is_floating(a.dtype())) {
    fail("matrix_exp: tensor is ", a.dtype(), " ", a.shape(), ", expected square matrices");
  }
  if (a.numel() == 0) return clone(a);
  const double norm = max(matrix_norm(a.detach(), 1.0)).full_tensor().item();
  if (!std::isfinite(norm)) return mul(a, std::nan(""));
  constexpr int kTerms = 18;  // 1 / 19! is below the precision of f64
  const int squarings = norm <= 1 ? 0 : static_cast<int>(std::ceil(std::log2(norm)));
  const Tensor x = div(cast(a, DType::f64), std::exp2(squarings));
  const int64_t n = a.size(a.ndim() - 1);
  Tensor term = x;
  Tensor made = add(eye(n, n, 0, options_next_to(a, DType::f64)), x);
  for (int k = 2; k <= kTerms; ++k) {
    term = div(matmul(term, x), k);
    made = add(made, term);
  }
  for (int i = 0; i < squarings; ++i) made = matmul(made, made);
  return cast(made, a.dtype());
}

}  // namespace weft
