// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/selection.h"

#include "ops/along_dim.h"
#include "ops/engine/tensor_body.h"
#include "ops/sorting.h"
#include "ops/take.h"
#include "weft/error.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/parts.h"
#include "weft/ops/reductions.h"
#include "weft/ops/shapes.h"

namespace weft {

/// The elements at `indices`, which have the dim with size 1.
static ValuesAndIndices at(const Tensor& a, const Tensor& indices, int dim, bool keepdims) {
  const Tensor values = take_along_dim(a, indices, dim);
  if (keepdims) return {values, indices};
  return {squeeze(values, dim), squeeze(indices, dim)};
}

ValuesAndIndices max_along(const Tensor& a, int dim, bool keepdims) {
  dim = checked_dim("max", a, dim);
  return at(a, argmax(a, dim, true), dim, keepdims);
}
ValuesAndIndices min_along(const Tensor& a, int dim, bool keepdims) {
  dim = checked_dim("min", a, dim);
  return at(a, argmin(a, dim, true), dim, keepdims);
}

ValuesAndIndices sort_along(const Tensor& a, int dim, bool descending) {
  check_tensor("sort", a);
  if (a.ndim() == 0) return {clone(a), zeros_like(cast(a, DType::i64))};
  const Tensors sorted = sort_with_indices(a, dim, descending);
  return {sorted[0], sorted[1]};
}

/// The number of ranks that cut a dim.
static int64_t parts_of_dim(const Tensor& a, int dim) {
  int64_t parts = 1;
  if (!a.is_sharded()) return parts;
  for (const int axis : a.sharding().axes_cutting(dim))
    parts *= a.sharding().mesh().axis_size(axis);
  return parts;
}

ValuesAndIndices topk(const Tensor& a, int64_t k, int dim, bool largest) {
  check_tensor("topk", a);
  if (a.ndim() == 0) {
    const auto [values, indices] = topk(unsqueeze(a, 0), k, dim, largest);
    return {reshape(values, {}), reshape(indices, {})};
  }
  const int along = normalized_dim("topk", dim, a.ndim());
  if (k < 0 || k > a.size(along)) {
    fail("topk: k is ", k, ", expected 0 to ", a.size(along), ", the size of dim ", along);
  }
  // Every rank gets the k elements, unless they are more than a part.
  const bool is_small = k * parts_of_dim(a, along) <= a.size(along);
  const Tensors found =
      is_small ? sorted_first(a, along, k, largest) : sort_with_indices(a, along, largest);
  if (is_small) return {found[0], found[1]};
  return {slice(found[0], along, 0, k), slice(found[1], along, 0, k)};
}

Tensor gather(const Tensor& a, int dim, const Tensor& index) {
  check_tensor("gather", a);
  check_tensor("gather", index);
  if (a.ndim() != index.ndim()) {
    fail("gather: index is ", index.shape(), ", expected as many dims as ", a.shape(), " has");
  }
  if (a.ndim() == 0) return reshape(gather(unsqueeze(a, 0), 0, unsqueeze(index, 0)), {});
  const int along = normalized_dim("gather", dim, a.ndim());
  Tensor from = a;
  for (int d = 0; d < a.ndim(); ++d) {
    if (d == along || index.size(d) == a.size(d)) continue;
    if (index.size(d) > a.size(d)) {
      fail("gather: index is ", index.shape(), ", expected at most ", a.size(d), " in dim ", d);
    }
    from = slice(from, d, 0, index.size(d));
  }
  return take_along_dim(from, index, along);
}

Tensor masked_select(const Tensor& a, const Tensor& mask) {
  check_tensor("masked_select", a);
  check_tensor("masked_select", mask);
  if (mask.dtype() != DType::boolean) {
    fail("masked_select: dtype of the mask is ", mask.dtype(), ", expected bool");
  }
  const Tensors both = broadcast_tensors({a, mask});
  const Tensor places = nonzero(reshape(both[1], {both[1].numel()}))[0];
  return take(reshape(both[0], {both[0].numel()}), places, 0);
}

Tensor isin(const Tensor& a, const Tensor& elements) {
  check_tensor("isin", a);
  check_tensor("isin", elements);
  if (elements.numel() == 0) return not_equal(a, a);
  const Tensor sorted = sort(reshape(elements, {elements.numel()}), 0);
  const Tensor places = searchsorted(sorted, reshape(a, {a.numel()}));
  const Tensor found = take(sorted, clip(places, 0, elements.numel() - 1), 0);
  return equal(reshape(found, a.shape()), a);
}

Tensor argwhere(const Tensor& a) {
  check_tensor("argwhere", a);
  if (a.ndim() == 0) return slice(argwhere(unsqueeze(a, 0)), 1, 0, 0);
  return stack(nonzero(a), 1);
}

Tensor one_hot(const Tensor& a, int64_t classes) {
  check_tensor("one_hot", a);
  if (is_floating(a.dtype())) fail("one_hot: dtype is ", a.dtype(), ", expected an integer");
  const bool is_empty = a.numel() == 0;
  if (is_empty && classes < 1) fail("one_hot: classes is ", classes, ", expected at least 1");
  const double least = is_empty ? 0 : min(a).full_tensor().item();
  const double most = is_empty ? 0 : max(a).full_tensor().item();
  const int64_t count = classes < 0 ? static_cast<int64_t>(most) + 1 : classes;
  if (least < 0 || most >= static_cast<double>(count)) {
    fail("one_hot: elements are ", least, " to ", most, ", expected 0 to ", count - 1);
  }
  const Tensor places = cast(unsqueeze(a, -1), DType::i64);
  return add_along_dim(ones_like(places), places, a.ndim(), count);
}

}  // namespace weft
