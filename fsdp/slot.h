// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fsdp/strategy.h"
#include "weft/module.h"

namespace weft::fsdp {

/// Dtypes of one parameter by what they are for; all as declared where it is not floating.
struct SlotTypes {
  DType storage, compute, gather, reduce, accumulate;
};
SlotTypes types_of(const MixedPrecision& precision, DType declared);

/// A parameter's place in its unit.
struct Slot {
  std::string name;
  ParameterPtr parameter;
  bool trainable;
  /// Along which it is cut.
  int dim;
  SlotTypes types;
  Shape shape;
  /// This rank's part of the axes that sharding does not use, and this rank's slice of it.
  Shape part;
  Shape slice;
  /// Bytes from the start of the slices' memory.
  size_t slice_offset = 0;
  /// Over axes that sharding does not use.
  Sharding before;
  /// The elements of `part` as forward sees them.
  Tensor whole;
  /// The value that the parameter had, until the slices have memory.
  Tensor given;
  /// How the slices lie, and how gradients come: to be added up over all axes used.
  Sharding slice_layout, gradient_layout;

  int64_t part_elements() const { return part.product(); }
  int64_t slice_elements() const { return slice.product(); }
};

/// The layout of a parameter that lies as `before` and whose `dim` is cut by the first `cut` of the
/// cutting axes too; `rest` on the others of them, `replicas` on the axes that do not cut.
Sharding layout_for(const Roles& roles, const Sharding& before, int dim, size_t cut, Placement rest,
                    Placement replicas);

/// An array that is cut along `dim` into one part a rank of a group: whole, dense, from `offset`
/// bytes on. When its parts are no stretches of memory or have another dtype, they also lie packed,
/// in rank order, from `packed` on.
struct Region {
  Shape shape;
  int dim = 0;
  DType dtype = DType::f32;
  /// Of the packed parts.
  DType wire = DType::f32;
  bool packs = false;
  size_t offset = 0;
  size_t packed = 0;
  /// Length along `dim` and elements of each rank's part.
  std::vector<int64_t> lengths;
  std::vector<int64_t> counts;

  int64_t elements() const { return shape.product(); }
  int64_t bytes() const { return elements() * static_cast<int64_t>(size_of(dtype)); }
  /// Where the parts begin that a collective reads or fills, in bytes.
  size_t start() const { return packs ? packed : offset; }
  /// Elements before a rank's part.
  int64_t before(int rank) const;
};

/// Memory of a buffer begins on cache lines.
size_t padded(size_t bytes);

/// Lengths of the parts of `n` elements that axes of these sizes cut, one within the other.
std::vector<int64_t> parts_of(int64_t n, std::span<const int> sizes);

/// The region of an array whose parts the ranks of `group` have; takes its bytes at `end`.
Region region_of(const Shape& shape, int dim, DType dtype, DType wire, const AxisGroup& group,
                 size_t& end);

/// Copies between the array and its packed parts.
void pack(const Region& region, const Ref<Storage>& memory);
void unpack(const Region& region, const Ref<Storage>& memory);

/// Elements of `memory` from a byte on, as a tensor of one device.
Tensor local_in(const Ref<Storage>& memory, size_t offset, const Shape& shape, DType dtype);

}  // namespace weft::fsdp
