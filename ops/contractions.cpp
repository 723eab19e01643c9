// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/products.h"
#include "weft/ops/reductions.h"
#include "weft/ops/shapes.h"

namespace weft {

/// Makes a matrix whose rows are dims `first`, in that order, and whose columns are dims `last`.
static Tensor as_matrix(const Tensor& a, const std::vector<int>& first,
                        const std::vector<int>& last) {
  std::vector<int> order = first;
  order.insert(order.end(), last.begin(), last.end());
  int64_t rows = 1, columns = 1;
  for (const int dim : first) rows *= a.size(dim);
  for (const int dim : last) columns *= a.size(dim);
  return reshape(permute(a, order), {rows, columns});
}

/// Normalizes `dims` and returns the dims that it does not name.
static std::vector<int> other_dims(const Tensor& a, std::vector<int>& dims) {
  for (int& dim : dims) dim = normalized_dim("tensordot", dim, a.ndim());
  std::vector<int> others;
  for (int d = 0; d < a.ndim(); ++d) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) others.push_back(d);
  }
  return others;
}

Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& dims_of_a,
                 const std::vector<int>& dims_of_b) {
  check_tensor("tensordot", a, b);
  if (dims_of_a.size() != dims_of_b.size()) {
    fail("tensordot: dims of operand 1 are ", dims_of_b.size(), ", expected ", dims_of_a.size(),
         " as of operand 0");
  }
  std::vector<int> first = dims_of_a, second = dims_of_b;
  const std::vector<int> kept_a = other_dims(a, first), kept_b = other_dims(b, second);
  for (size_t i = 0; i < first.size(); ++i) {
    if (a.size(first[i]) == b.size(second[i])) continue;
    fail("tensordot: dim ", second[i], " of ", b.shape(), " is ", b.size(second[i]), ", expected ",
         a.size(first[i]), " as dim ", first[i], " of ", a.shape());
  }
  Shape shape;
  for (const int dim : kept_a) shape.push_back(a.size(dim));
  for (const int dim : kept_b) shape.push_back(b.size(dim));
  return reshape(matmul(as_matrix(a, kept_a, first), as_matrix(b, second, kept_b)), shape);
}

Tensor tensordot(const Tensor& a, const Tensor& b, int count) {
  check_tensor("tensordot", a, b);
  if (count < 0 || count > std::min(a.ndim(), b.ndim())) {
    fail("tensordot: the number of dims is ", count, ", expected 0 to those of ", a.shape(),
         " and ", b.shape());
  }
  std::vector<int> first(static_cast<size_t>(count)), second(first);
  std::iota(first.begin(), first.end(), a.ndim() - count);
  std::iota(second.begin(), second.end(), 0);
  return tensordot(a, b, first, second);
}

/// Returns `dim` counted from the end.
static int dim_from_end(const char* what, const Tensor& a, const Tensor& b, int dim) {
  check_tensor(what, a, b);
  const int at = dim >= 0 && a.ndim() == b.ndim() ? dim - a.ndim() : dim;
  if (at >= 0 || at < -std::min(a.ndim(), b.ndim())) {
    fail(what, ": dim is ", dim, ", expected one of ", a.shape(), " and ", b.shape(),
         ", counted from the end");
  }
  return at;
}

/// The products of two tensors, added along the last dim.
static const Op dot_op = register_op({
    .name = "dot_rows",
    .rule = "... n, ... n -> ...",
    .takes = {{.dtypes = {f32, DType::f64}}, {.dtypes = {f32, DType::f64}}},
    .linear = {{0}, {1}},
    .forward = [](const Call& c) { dot_rows(c.out(), c.in(0), c.in(1)); },
    .backward =
        [](const Grad& g) {
          const Tensor each = unsqueeze(g.grad(), -1);
          if (g.wants(0)) g.give(0, mul(each, g.in(1)));
          if (g.wants(1)) g.give(1, mul(each, g.in(0)));
        },
    .samples = {{.shapes = {{5, 7}, {5, 7}}}, {.shapes = {{6}, {6}}}},
});

Tensor vecdot(const Tensor& a, const Tensor& b, int dim) {
  const int at = dim_from_end("vecdot", a, b, dim);
  if (a.size(at) != b.size(at)) {
    fail("vecdot: dim ", at, " of ", b.shape(), " is ", b.size(at), ", expected ", a.size(at),
         " as of ", a.shape());
  }
  const DType dtype = promote(a.dtype(), b.dtype());
  const bool is_half = dtype == DType::bf16 || dtype == DType::f16;
  const bool is_wide = dtype == f32 || dtype == DType::f64;
  if (is_wide && a.dtype() == b.dtype() && a.shape() == b.shape() && at == -1) {
    return dot_op({a, b});
  }
  const Tensor product = is_half ? mul(cast(a, DType::f32), cast(b, DType::f32)) : mul(a, b);
  return cast(sum(product, {at}), dtype);
}

Tensor outer(const Tensor& a, const Tensor& b) {
  for (const Tensor& x : {a, b}) {
    check_tensor("outer", x);
    if (x.ndim() != 1) fail("outer: the tensor is ", x.shape(), ", expected one dim");
  }
  return mul(unsqueeze(a, 1), b);
}

Tensor cross(const Tensor& a, const Tensor& b, int dim) {
  const int at = dim_from_end("cross", a, b, dim);
  for (const Tensor& x : {a, b}) {
    if (x.size(at) != 3)
      fail("cross: dim ", at, " of ", x.shape(), " is ", x.size(at), ", expected 3");
  }
  Tensors parts;
  for (const int i : {1, 2, 0}) {
    const int j = (i + 1) % 3;
    const auto part = [at](const Tensor& x, int k) { return slice(x, at, k, k + 1); };
    parts.push_back(sub(mul(part(a, i), part(b, j)), mul(part(a, j), part(b, i))));
  }
  return cat(parts, at);
}

Tensor trace(const Tensor& a, int64_t offset) { return sum(diagonal(a, offset), {-1}); }

}  // namespace weft
