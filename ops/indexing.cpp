// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/indexing.h"

#include "mesh/grid.h"
#include "ops/dims.h"
#include "ops/engine/engine.h"
#include "ops/engine/tensor_body.h"
#include "ops/take.h"
#include "src/kernels/copy/dense.h"
#include "src/kernels/take/take.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

namespace {

/// A tensor whose indexed dims are one dim, and the places in it.
struct JoinedDims {
  Tensor tensor;
  /// The dim, and [n] places along it.
  int at = 0;
  Tensor places;
  /// The shape that the indices broadcast to.
  Shape shape;
  /// Dim i of the tensor before it was joined is dim order[i] of the given one.
  std::vector<int> order;
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
  bool are_neighbours = true;
  for (size_t i = 0; i < indices.size(); ++i) {
    check_tensor(what, indices[i].index);
    const bool is_next = i == 0 || indices[i].dim == indices[i - 1].dim + 1;
    if (i > 0 && indices[i].dim <= indices[i - 1].dim) {
      fail(what, ": dims are ", indices[i - 1].dim, " and ", indices[i].dim,
           ", expected ascending ones");
    }
    are_neighbours = are_neighbours && is_next;
    given.push_back(indices[i].index);
  }
  if (indices.back().dim >= a.ndim() || indices[0].dim < 0) {
    fail(what, ": dim is ", indices.back().dim, ", expected one of the ", a.ndim(), " of ",
         a.shape());
  }
  const Tensors all = given.size() == 1 ? given : broadcast_tensors(given);
  JoinedDims made;
  made.shape = all[0].shape();
  const Tensor places = joined_places(a, indices, all);
  made.places = reshape(places, {places.numel()});
  made.at = are_neighbours ? indices[0].dim : 0;
  std::vector<bool> is_indexed(static_cast<size_t>(a.ndim()));
  for (const DimIndex& one : indices) is_indexed[static_cast<size_t>(one.dim)] = true;
  for (int d = 0; d < made.at; ++d) made.order.push_back(d);
  for (const DimIndex& one : indices) made.order.push_back(one.dim);
  for (int d = made.at; d < a.ndim(); ++d) {
    if (!is_indexed[static_cast<size_t>(d)]) made.order.push_back(d);
  }
  const Tensor ordered = permute(a, made.order);
  made.ordered = ordered.shape();
  Shape shape;
  const auto count = static_cast<int>(indices.size());
  int64_t size = 1;
  for (int d = 0; d < a.ndim(); ++d) {
    const bool joins = d >= made.at && d < made.at + count;
    if (joins) size *= ordered.size(d);
    if (d == made.at + count - 1) shape.push_back(size);
    if (!joins) shape.push_back(ordered.size(d));
  }
  made.tensor = reshape(ordered, shape);
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
  Shape shape = dims.tensor.shape();
  shape[dims.at] = dims.places.numel();
  const Tensor source = reshape(expand(given, shape_of_elements(dims)), shape);
  const Tensor put = accumulate ? index_add(dims.tensor, dims.at, dims.places, source)
                                : index_copy(dims.tensor, dims.at, dims.places, source);
  return permute(reshape(put, dims.ordered), inverse_of(dims.order));
}

}  // namespace weft
