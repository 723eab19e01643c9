// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "ops/promotion.h"
#include "ops/take.h"
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
  const DType dtype = is_floating(rows.dtype()) ? real_dtype(rows.dtype()) : DType::f32;
  Tensor w = frequencies ? cast(*frequencies, dtype)
                         : slice(ones_like(cast(real(rows), dtype)), 0, 0, 1).detach();
  w = reshape(w, {1, rows.size(1)});
  if (weights) w = mul(w, cast(*weights, dtype));
  const Tensor total = sum(w);
  const Tensor mean_of_rows = div(sum(mul(rows, w), {1}, true), total);
  const Tensor centred = sub(rows, mean_of_rows);
  const Tensor reduced =
      weights ? mul(div(sum(mul(w, *weights)), total), correction) : next_to(total, correction);
  const Tensor products =
      div(matmul(mul(centred, w), conj(centred.transpose(0, 1))), clip(sub(total, reduced), 0));
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

/// Bins that a histogram may have.
static constexpr int64_t kMostBins = int64_t{1} << 31;

static Tensor flattened(const char* what, const Tensor& a) {
  check_tensor(what, a);
  return reshape(a, {a.numel()});
}

static void check_bins(const char* what, int64_t bins) {
  if (bins < 1 || bins > kMostBins) fail(what, ": bins is ", bins, ", expected 1 to ", kMostBins);
}

struct Bounds {
  double low, high;
};

/// The bounds given, or those of `elements`, if any, with a `margin` around one value.
static Bounds bounds_of(const char* what, const Tensor& elements, Bounds given, double margin) {
  if (elements && elements.numel() > 0) {
    given = {min(elements).full_tensor().item(), max(elements).full_tensor().item()};
  }
  if (given.low == given.high) given = {given.low - margin, given.high + margin};
  if (std::isfinite(given.low) && std::isfinite(given.high) && given.low < given.high) {
    return given;
  }
  fail(what, ": range is ", given.low, " to ", given.high, ", expected finite and ascending");
}

Tensor histc(const Tensor& a, int64_t bins, double low, double high) {
  const Tensor x = flattened("histc", a).detach();
  check_bins("histc", bins);
  if (!is_floating(x.dtype())) fail("histc: dtype is ", x.dtype(), ", expected a floating one");
  const Bounds at = bounds_of("histc", low == high ? x : Tensor(), {low, high}, 1);
  const Tensor counts = logical_and(greater_equal(x, at.low), less_equal(x, at.high));
  const Tensor place =
      div(mul(sub(masked_fill(x, logical_not(counts), at.low), at.low), static_cast<double>(bins)),
          at.high - at.low);
  const Tensor bin = clip(cast(place, DType::i64), 0, bins - 1);
  return add_along_dim(cast(counts, x.dtype()), bin, 0, bins);
}

Histogram histogram(const Tensor& a, const Tensor& edges, const std::optional<Tensor>& weight,
                    bool density) {
  const Tensor x = flattened("histogram", a).detach();
  check_tensor("histogram", edges);
  if (edges.ndim() != 1 || edges.size(0) < 2) {
    fail("histogram: edges are ", edges.shape(), ", expected a vector of at least 2");
  }
  if (weight && weight->shape() != a.shape()) {
    fail("histogram: weight is ", weight->shape(), ", expected ", a.shape());
  }
  const int64_t bins = edges.size(0) - 1;
  const Tensor last = slice(edges, 0, bins, bins + 1);
  const Tensor place = sub(searchsorted(edges, x, true), 1);
  const Tensor bin = where(equal(x, last), next_to(place, bins - 1), place);
  const Tensor counts = logical_and(greater_equal(bin, 0), less(bin, bins));
  const Tensor own = weight ? flattened("histogram", *weight) : ones_like(x);
  // Counts of a small integer dtype would overflow.
  const DType dtype = is_floating(own.dtype()) ? own.dtype() : DType::i64;
  const Tensor sums =
      add_along_dim(mul(cast(own, dtype), cast(counts, dtype)), clip(bin, 0, bins - 1), 0, bins);
  if (!density) return {sums, edges};
  const Tensor all = is_floating(dtype) ? sums : cast(sums, DType::f64);
  return {div(div(all, sum(all)), diff(edges)), edges};
}

Histogram histogram(const Tensor& a, int64_t bins, const std::optional<std::vector<double>>& range,
                    const std::optional<Tensor>& weight, bool density) {
  check_tensor("histogram", a);
  check_bins("histogram", bins);
  if (range && range->size() != 2) {
    fail("histogram: range has ", range->size(), " numbers, expected 2");
  }
  const Bounds at = range ? bounds_of("histogram", Tensor(), Bounds{(*range)[0], (*range)[1]}, 0.5)
                          : bounds_of("histogram", a.detach(), Bounds{0, 0}, 0.5);
  const DType dtype = is_floating(a.dtype()) ? a.dtype() : DType::f64;
  const Tensor edges = linspace(at.low, at.high, bins + 1, true, options_next_to(a, dtype));
  return histogram(a, edges, weight, density);
}

Tensor bincount(const Tensor& a, const std::optional<Tensor>& weights, int64_t minlength) {
  check_tensor("bincount", a);
  if (a.ndim() != 1 || is_floating(a.dtype()) || a.dtype() == DType::boolean) {
    fail("bincount: tensor is ", a.dtype(), " ", a.shape(), ", expected a vector of integers");
  }
  if (minlength < 0 || minlength > kMostBins) {
    fail("bincount: minlength is ", minlength, ", expected 0 to ", kMostBins);
  }
  if (weights && weights->shape() != a.shape()) {
    fail("bincount: weights are ", weights->shape(), ", expected ", a.shape());
  }
  const Tensor x = cast(a, DType::i64);
  const double least = a.numel() == 0 ? 0 : min(x).full_tensor().item();
  const double most = a.numel() == 0 ? -1 : max(x).full_tensor().item();
  if (least < 0 || most >= static_cast<double>(kMostBins)) {
    fail("bincount: elements are ", least, " to ", most, ", expected 0 to ", kMostBins - 1);
  }
  const int64_t count = std::max(minlength, static_cast<int64_t>(most) + 1);
  // One number stands for all ones.
  const Tensor one = x.is_sharded() ? ones_like(x) : ones({1}, options_next_to(x, DType::i64));
  const Tensor own = weights ? *weights : expand(one, x.shape());
  return add_along_dim(is_floating(own.dtype()) ? own : cast(own, DType::i64), x, 0, count);
}

}  // namespace weft
