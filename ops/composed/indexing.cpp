// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "mesh/grid.h"
#include "ops/dims.h"
#include "ops/engine/engine.h"
#include "ops/promotion.h"
#include "ops/sorting.h"
#include "ops/take.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/take/take.h"
#include "weft/ops.h"

namespace weft {

/// The elements at `indices`, which have the dim with size 1.
static ValuesAndIndices at(const Tensor& a, const Tensor& indices, int dim, bool keepdims) {
  return without_dim({take_along_dim(a, indices, dim), indices}, dim, keepdims);
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

ValuesAndIndices topk(const Tensor& a, int64_t k, int dim, bool largest) {
  check_tensor("topk", a);
  if (a.ndim() == 0) return without_dim(topk(unsqueeze(a, 0), k, dim, largest), 0, false);
  const int along = normalized_dim("topk", dim, a.ndim());
  if (k < 0 || k > a.size(along)) {
    fail("topk: k is ", k, ", expected 0 to ", a.size(along), ", the size of dim ", along);
  }
  // Every rank gets the k elements, unless they are more than a part.
  const int64_t parts =
      a.is_sharded() ? layout_of(a)->grid->size(a.sharding().axes_cutting(along)) : 1;
  const bool is_small = k * parts <= a.size(along);
  const Tensors found =
      is_small ? sorted_first(a, along, k, largest) : sort_with_indices(a, along, largest);
  return {slice(found[0], along, 0, k), slice(found[1], along, 0, k)};
}

Tensor gather(const Tensor& a, int dim, const Tensor& index) {
  check_tensor("gather", a, index);
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
  check_mask("masked_select", mask);
  const Tensors both = broadcast_tensors({a, mask});
  const Tensor places = nonzero(flatten(both[1]))[0];
  return take(flatten(both[0]), places, 0);
}

Tensor isin(const Tensor& a, const Tensor& elements) {
  check_tensor("isin", a, elements);
  if (elements.numel() == 0) return not_equal(a, a);
  const Tensor sorted = sort(flatten(elements), 0);
  const Tensor places = searchsorted(sorted, flatten(a));
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
  if (classes < -1 || classes == 0 || (is_empty && classes < 0)) {
    fail("one_hot: classes is ", classes, ", expected at least 1",
         is_empty ? ", as there are no elements" : ", or -1 for the largest element + 1");
  }
  const double least = is_empty ? 0 : min(a).full_tensor().item();
  const double most = is_empty ? 0 : max(a).full_tensor().item();
  const int64_t count = classes < 0 ? static_cast<int64_t>(most) + 1 : classes;
  if (least < 0 || most >= static_cast<double>(count)) {
    fail("one_hot: elements are ", least, " to ", most, ", expected 0 to ", count - 1);
  }
  const Tensor places = cast(unsqueeze(a, -1), DType::i64);
  return add_along_dim(ones_like(places), places, a.ndim(), count);
}

/// Appends the rest of each row of `r` indices below `n` to `rows`.
static void append_rows(std::vector<int64_t>& rows, std::vector<int64_t>& row, int64_t n, size_t r,
                        bool with_replacement) {
  if (row.size() == r) {
    rows.insert(rows.end(), row.begin(), row.end());
    return;
  }
  for (int64_t i = row.empty() ? 0 : row.back() + (with_replacement ? 0 : 1); i < n; ++i) {
    row.push_back(i);
    append_rows(rows, row, n, r, with_replacement);
    row.pop_back();
  }
}

Tensor combinations(const Tensor& a, int64_t r, bool with_replacement) {
  check_tensor("combinations", a);
  if (a.ndim() != 1) fail("combinations: tensor is ", a.shape(), ", expected one dim");
  constexpr double kMost = 1 << 26;
  const bool is_long = r > static_cast<int64_t>(kMost);
  const auto n = static_cast<double>(a.size(0));
  double count = 1;
  if (r < 0) fail("combinations: r is ", r, ", expected at least 0");
  for (int64_t i = 0; !is_long && i < r && count > 0 && count <= kMost; ++i) {
    const auto step = static_cast<double>(i);
    count *= std::max(0.0, with_replacement ? n + step : n - step) / (step + 1);
  }
  if (count > kMost || is_long) {
    fail("combinations: r is ", r, " for ", a.size(0), " elements, expected at most ", kMost,
         " rows");
  }
  std::vector<int64_t> rows, row;
  if (r > 0 && count > 0) {
    append_rows(rows, row, a.size(0), static_cast<size_t>(r), with_replacement);
  }
  const auto total = static_cast<int64_t>(rows.size());
  const Tensor places = from_values(rows, {total}, options_next_to(a, DType::i64));
  return reshape(take(a, places, 0), {r > 0 ? total / r : 0, r});
}

namespace {

/// A tensor whose indexed dims are one dim, and the places in it.
struct JoinedDims {
  Tensor tensor;
  /// The dim, and [n] places along it.
  int at = 0;
  Tensor places;
  /// The shape that the indices broadcast to.
  Shape shape;
  /// The indexed dims of the given tensor, and their places before they were joined.
  std::vector<int> from, to;
  Shape ordered;
};

/// Fails where an index is outside its dim, on all ranks if some have other indices than others.
void check_indices(const Tensor& a, const std::vector<DimIndex>& indices, const Tensors& all) {
  std::string mistake;
  Sharding cut;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (all[i].is_sharded() && !all[i].sharding().is_replicated()) cut = all[i].sharding();
    if (all[i].device().kind == DeviceKind::meta || !mistake.empty()) continue;
    const int64_t size = a.size(indices[i].dim);
    if (auto outside = find_index_outside(DenseBlock::of(all[i].block()), size)) {
      mistake = concat("index: index of dim ", indices[i].dim, " of ", a.shape(), " is ", *outside,
                       ", expected ", -size, " to ", size - 1);
    }
  }
  if (cut && a.device().kind != DeviceKind::meta) {
    fail_on_all_ranks(cut.body()->grid->ranks(), mistake);
  } else if (!mistake.empty()) {
    fail(mistake);
  }
}

/// The places along the joined dims, with 0 <= index < size in each of several dims.
Tensor joined_places(const Tensor& a, const std::vector<DimIndex>& indices, Tensors all) {
  const bool is_one = indices.size() == 1;
  // The indices of one dim are checked as they are used; ranks vote only if some hold others.
  if (is_one && (!all[0].is_sharded() || all[0].sharding().is_replicated())) return all[0];
  for (Tensor& index : all) {
    if (!index.is_sharded() || !index.sharding().has_partial()) continue;
    index = moved_to(index,
                     layout_of(reduced_sharding(index.sharding()), index.shape(), index.dtype()));
  }
  check_indices(a, indices, all);
  if (is_one) return all[0];
  Tensor places;
  for (size_t i = 0; i < indices.size(); ++i) {
    const int64_t size = a.size(indices[i].dim);
    const Tensor own = where(less(all[i], 0), add(all[i], size), all[i]);
    places = places ? add(mul(places, size), own) : own;
  }
  return places;
}

JoinedDims joined(const char* what, const Tensor& a, const std::vector<DimIndex>& indices) {
  check_tensor(what, a);
  if (indices.empty()) fail(what, ": number of indices is 0, expected at least 1");
  Tensors given;
  for (size_t i = 0; i < indices.size(); ++i) {
    check_tensor(what, indices[i].index);
    if (i > 0 && indices[i].dim <= indices[i - 1].dim) {
      fail(what, ": dims are ", indices[i - 1].dim, " and ", indices[i].dim,
           ", expected ascending ones");
    }
    given.push_back(indices[i].index);
  }
  if (indices.back().dim >= a.ndim() || indices[0].dim < 0) {
    fail(what, ": dim is ", indices.back().dim, ", expected one of the ", a.ndim(), " of ",
         a.shape());
  }
  // Indices that are equal on all ranks are computed with, which does not keep their mark.
  for (Tensor& one : given) {
    const bool joins = given.size() > 1 && a.is_sharded() && !one.is_sharded();
    if (joins && one.storage()->is_equal_on_ranks()) {
      one = distribute(one, a.sharding().mesh(), {});
    }
  }
  const Tensors all = given.size() == 1 ? given : broadcast_tensors(given);
  JoinedDims made;
  made.shape = all[0].shape();
  const Tensor places = joined_places(a, indices, all);
  made.places = reshape(places, {places.numel()});
  const int between = indices.back().dim - indices[0].dim;
  made.at = between + 1 == static_cast<int>(indices.size()) ? indices[0].dim : 0;
  for (const DimIndex& one : indices) {
    made.to.push_back(made.at + static_cast<int>(made.from.size()));
    made.from.push_back(one.dim);
  }
  const Tensor ordered = moveaxis(a, made.from, made.to);
  made.ordered = ordered.shape();
  made.tensor = flatten(ordered, made.at, made.to.back());
  return made;
}

/// The shape of the elements at the places.
Shape shape_of_elements(const JoinedDims& dims) {
  Shape shape;
  for (int d = 0; d < dims.tensor.ndim(); ++d) {
    if (d != dims.at) {
      shape.push_back(dims.tensor.size(d));
      continue;
    }
    for (const int64_t size : dims.shape) shape.push_back(size);
  }
  return shape;
}

}  // namespace

Tensor index(const Tensor& a, const std::vector<DimIndex>& indices) {
  const JoinedDims dims = joined("index", a, indices);
  return reshape(take(dims.tensor, dims.places, dims.at), shape_of_elements(dims));
}

std::vector<DimIndex> indices_of_mask(const Tensor& mask, int dim) {
  check_mask("index", mask);
  std::vector<DimIndex> indices;
  for (const Tensor& places : nonzero(mask)) {
    indices.push_back({dim + static_cast<int>(indices.size()), places});
  }
  return indices;
}

Tensor index_put(const Tensor& a, const std::vector<DimIndex>& indices, const Operand& values,
                 bool accumulate) {
  const JoinedDims dims = joined("index_put", a, indices);
  const Tensor given = cast(next_to(a, values), a.dtype());
  const Shape shape = with_size(dims.tensor.shape(), dims.at, dims.places.numel());
  const Tensor source = reshape(expand(given, shape_of_elements(dims)), shape);
  const Tensor put = accumulate ? index_add(dims.tensor, dims.at, dims.places, source)
                                : index_copy(dims.tensor, dims.at, dims.places, source);
  return moveaxis(reshape(put, dims.ordered), dims.to, dims.from);
}

}  // namespace weft
