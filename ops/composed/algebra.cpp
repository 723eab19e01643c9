// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/complex.h"
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

template <class... Others>
static void check_dims(const char* what, int dims, const Tensor& a, const Others&... others) {
  check_tensor(what, a);
  if (a.ndim() != dims) fail(what, ": tensor is ", a.shape(), ", expected ", dims, " dims");
  if constexpr (sizeof...(others) > 0) check_dims(what, dims, others...);
}

static Tensor scaled_sum(const Tensor& c, const Tensor& product, Number beta, Number alpha) {
  const Tensor scaled = is_real(alpha, 1) ? product : mul(product, alpha);
  if (is_real(beta, 0)) return scaled;
  return add(is_real(beta, 1) ? c : mul(c, beta), scaled);
}

Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta, Number alpha) {
  check_dims("addmm", 2, a, b);
  return scaled_sum(c, matmul(a, b), beta, alpha);
}
Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& b, Number beta, Number alpha) {
  return scaled_sum(c, mv(a, b), beta, alpha);
}
Tensor addr(const Tensor& c, const Tensor& a, const Tensor& b, Number beta, Number alpha) {
  check_dims("addr", 1, a, b);
  check_tensor("addr", c);
  if (is_real(beta, 1)) return addcmul(c, unsqueeze(a, 1), b, alpha);
  return scaled_sum(c, outer(a, b), beta, alpha);
}
Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta, Number alpha) {
  check_dims("baddbmm", 3, a, b);
  return scaled_sum(c, matmul(a, b), beta, alpha);
}
Tensor addbmm(const Tensor& c, const Tensor& a, const Tensor& b, Number beta, Number alpha) {
  check_dims("addbmm", 3, a, b);
  return scaled_sum(c, sum(matmul(a, b), {0}), beta, alpha);
}

Tensor mv(const Tensor& a, const Tensor& b) {
  check_dims("mv", 2, a);
  check_dims("mv", 1, b);
  return squeeze(matmul(a, unsqueeze(b, 1)), 1);
}

Tensor dot(const Tensor& a, const Tensor& b) {
  check_dims("dot", 1, a, b);
  return vecdot(conj(a), b);  // which conjugates its first operand
}

Tensor inner(const Tensor& a, const Tensor& b) {
  check_tensor("inner", a, b);
  if (a.ndim() == 0 || b.ndim() == 0) return mul(a, b);
  return tensordot(a, b, {-1}, {-1});
}

Tensor kron(const Tensor& a, const Tensor& b) {
  check_tensor("kron", a, b);
  const int dims = std::max(a.ndim(), b.ndim());
  Shape of_a, of_b, made;
  for (int d = 0; d < dims; ++d) {
    const int in_a = d - dims + a.ndim(), in_b = d - dims + b.ndim();
    const int64_t rows = in_a < 0 ? 1 : a.size(in_a), columns = in_b < 0 ? 1 : b.size(in_b);
    of_a.push_back(rows);
    of_a.push_back(1);
    of_b.push_back(1);
    of_b.push_back(columns);
    made.push_back(rows * columns);
  }
  if (dims == 0) return mul(a, b);
  // Repeats the last dims to one long one first: short lines are slow to multiply.
  const auto repeated = [](const Tensor& x, Shape shape, int dim, int64_t size) {
    const Tensor apart = reshape(x, shape);
    shape[dim] = size;
    const Tensor whole = expand(apart, shape);
    const int64_t columns = shape.back();
    shape.erase(shape.ndim() - 1);
    shape[shape.ndim() - 1] *= columns;
    return reshape(whole, shape);
  };
  const int last = 2 * dims - 1;
  return reshape(
      mul(repeated(a, of_a, last, of_b[last]), repeated(b, of_b, last - 1, of_a[last - 1])), made);
}

/// |x - y|^2 = |x|^2 - 2 x y + |y|^2, by one product, for many rows; the rounding error is that of
/// the squares of the norms, as in PyTorch. Equal rows have no gradient.
static Tensor distances_by_product(const Tensor& a, const Tensor& b) {
  const auto squares_of = [](const Tensor& x) { return sum_squares(x, {-1}, true); };
  const Tensor of_a = squares_of(a), of_b = squares_of(b);
  const Tensor left = cat({mul(a, -2), of_a, ones_like(of_a)}, -1);
  const Tensor right = cat({b, ones_like(of_b), of_b}, -1);
  const Tensor squares = matmul(left, right.transpose(-2, -1));
  const Tensor is_zero = less_equal(squares, 0);
  return masked_fill(sqrt(masked_fill(squares, is_zero, 1)), is_zero, 0);
}

Tensor cdist(const Tensor& a, const Tensor& b, double p) {
  constexpr int64_t kMostApart = 25;  // PyTorch's
  check_tensor("cdist", a, b);
  const bool is_plain =
      a.dtype() == b.dtype() && (a.dtype() == DType::f32 || a.dtype() == DType::f64);
  if (p == 2 && is_plain && a.ndim() > 1 && b.ndim() > 1 && a.size(-1) == b.size(-1) &&
      (a.size(-2) > kMostApart || b.size(-2) > kMostApart)) {
    return distances_by_product(a, b);
  }
  return vector_norm(sub(unsqueeze(a, -2), unsqueeze(b, -3)), p, {-1});
}

Tensor dist(const Tensor& a, const Tensor& b, double p) { return vector_norm(sub(a, b), p); }

Tensor cov(const Tensor& a, double correction) {
  check_tensor("cov", a);
  if (a.ndim() > 2) fail("cov: tensor is ", a.shape(), ", expected at most 2 dims");
  const Tensor rows = atleast_2d(a);
  const Tensor centred = sub(rows, mean(rows, {1}, true));
  const Tensor products = div(matmul(centred, conj(centred.transpose(0, 1))),
                              std::max(0.0, static_cast<double>(rows.size(1)) - correction));
  return rows.size(0) == 1 ? reshape(products, {}) : products;
}

Tensor corrcoef(const Tensor& a) {
  const Tensor products = cov(a);
  if (products.ndim() == 0) return div(products, products);
  const Tensor deviations = sqrt(diagonal(products));
  return clip(div(products, outer(deviations, deviations)), -1, 1);
}

/// Half the sums of neighbours along the dim, times their distances.
static Tensor trapezoids(const Tensor& y, const Tensor* x, double dx, int dim) {
  const int at = checked_dim("trapezoid", y, dim);
  const int64_t n = y.size(at);
  const Tensor sums = add(slice(y, at, 1, n), slice(y, at, 0, std::max<int64_t>(n - 1, 0)));
  if (!x) return mul(sums, dx / 2);
  Tensor steps = diff(*x, x->ndim() == 1 ? 0 : at);
  for (int d = at + 1; x->ndim() == 1 && d < y.ndim(); ++d) steps = unsqueeze(steps, -1);
  return mul(mul(sums, steps), 0.5);
}

Tensor trapezoid(const Tensor& y, const Tensor& x, int dim) {
  return sum(trapezoids(y, &x, 1, dim), {dim});
}
Tensor trapezoid(const Tensor& y, double dx, int dim) {
  const int at = checked_dim("trapezoid", y, dim);
  const int64_t n = y.size(at);
  if (n == 0) return mul(sum(y, {at}), dx);
  const Tensor ends = add(slice(y, at, 0, 1), slice(y, at, n - 1, n));
  return mul(sub(sum(y, {at}), mul(squeeze(ends, at), 0.5)), dx);
}
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, int dim) {
  return cumulative_sum(trapezoids(y, &x, 1, dim), dim);
}
Tensor cumulative_trapezoid(const Tensor& y, double dx, int dim) {
  return cumulative_sum(trapezoids(y, nullptr, dx, dim), dim);
}

Tensor vander(const Tensor& a, int64_t n, bool increasing) {
  check_dims("vander", 1, a);
  constexpr int64_t kMost = 1 << 16;
  const int64_t columns = n < 0 ? a.size(0) : n;
  if (columns > kMost) fail("vander: n is ", columns, ", expected at most ", kMost);
  Tensors powers;
  for (int64_t i = 0; i < columns; ++i) powers.push_back(pow(a, increasing ? i : columns - 1 - i));
  return powers.empty() ? slice(expand(unsqueeze(a, 1), {a.size(0), 1}), 1, 0, 0)
                        : stack(powers, 1);
}

}  // namespace weft
