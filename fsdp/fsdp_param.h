// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fsdp/strategy.h"
#include "weft/module.h"

namespace weft::fsdp {

/// Dtypes of one parameter by purpose; a parameter that is not floating keeps its declared dtype.
struct ParamTypes {
  DType storage, compute, gather, reduce, accumulate;
};
ParamTypes types_of(const MixedPrecision& precision, DType declared);

/// One parameter of a group.
struct FsdpParam {
  std::string name;
  ParameterPtr parameter;
  bool trainable;
  /// Position among the group's gradients, if it is trainable.
  size_t grad = 0;
  std::shared_ptr<AllGatherExtension> extension;
  /// Set if the parameter is sent as codes.
  std::optional<DType> codes;
  /// Dimension along which the parameter is sharded.
  int dim;
  ParamTypes types;
  /// Global shape.
  Shape shape;
  /// Local shapes while the group is unsharded and while it is sharded.
  Shape unsharded_shape;
  Shape sharded_shape;
  /// Bytes from the start of the group's slices.
  size_t slice_offset = 0;
  /// Layout over the axes that FSDP does not use.
  Sharding other_axes;
  /// The tensor that forward reads. Its storage is bound while the group is unsharded.
  Tensor unsharded;
  /// The value that the parameter had, until the slices have memory.
  Tensor pending_value;
  /// Layouts of the slice, and of a gradient before its reduction: Partial over all axes that FSDP
  /// uses.
  Sharding sharded_layout, gradient_layout;

  int64_t unsharded_elements() const { return unsharded_shape.product(); }
  int64_t sharded_elements() const { return sharded_shape.product(); }
};

/// Returns the layout of a parameter laid out as `other_axes` whose `dim` is also sharded over the
/// first `count` axes of `roles.sharded`. The other axes of `roles.sharded` get the placement
/// `others`, the axes of replicas `replicas`.
Sharding layout_for(const Roles& roles, const Sharding& other_axes, int dim, size_t count,
                    Placement others, Placement replicas);

/// An array in a buffer, dense from byte `offset` on, and how the ranks of a group share it: one
/// part a rank along `dim`. If the parts are not contiguous or have another dtype on the wire, they
/// also lie packed, in rank order, from byte `packed` on.
struct Region {
  Shape shape;
  int dim = 0;
  DType dtype = DType::f32;
  /// Dtype of the packed parts.
  DType wire = DType::f32;
  bool packs = false;
  size_t offset = 0;
  size_t packed = 0;
  /// Length along `dim` and number of elements of each rank's part.
  std::vector<int64_t> lengths;
  std::vector<int64_t> counts;

  int64_t elements() const { return shape.product(); }
  int64_t bytes() const { return elements() * static_cast<int64_t>(size_of(dtype)); }
  /// First byte of the parts that a collective reads or writes.
  size_t start() const { return packs ? packed : offset; }
  /// Elements before a rank's part.
  int64_t elements_before(int rank) const;
};

/// Rounds up to whole cache lines, on which every region starts.
size_t padded(size_t bytes);

/// The place of an array, in memory or on disk, behind byte `end`, which moves behind it.
size_t place_of_array(int64_t elements, DType dtype, bool on_disk, size_t& end);

/// Returns the lengths of the parts of `n` elements sharded over axes of these sizes, the first
/// axis outermost.
std::vector<int64_t> parts_of(int64_t n, std::span<const int> sizes);

/// Makes the region of an array that the ranks of `group` share, by default in equal chunks. Its
/// bytes start at `end`, which moves behind them. `may_pack`: parts that are not contiguous, or
/// have another dtype on the wire, are packed.
Region region_of(const Shape& shape, int dim, DType dtype, DType wire, const AxisGroup& group,
                 size_t& end, const std::vector<int64_t>& lengths = {}, bool may_pack = true);

/// Copies the array to its packed parts, and back.
void pack(const Region& region, const Ref<Storage>& memory);
void unpack(const Region& region, const Ref<Storage>& memory);

/// Returns the elements of `memory` from byte `offset` on as a tensor, by default of one device.
Tensor local_in(const Ref<Storage>& memory, size_t offset, const Shape& shape, DType dtype,
                const Sharding& layout = {});

}  // namespace weft::fsdp
