// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fsdp/buffers.h"
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

/// The gradient of one parameter: where it lies, and how far it is.
struct ParamGrad {
  /// How far this backward is with a gradient. `missing`: complete without a contribution.
  enum class Progress : uint8_t { expected, written, complete, missing };
  /// The sum in the final memory. `own`: still to be summed over replicas, if there are any.
  /// `of_replicas`: that sum.
  enum class Sum : uint8_t { none, own, of_replicas };

  FsdpParam* param;
  int bucket = 0;
  /// In the buffer, and in the middle memory between two scatters.
  Region unsharded, middle;
  /// Bytes from the start of the final memory.
  size_t offset = 0;
  Progress progress = Progress::expected;
  Sum sum = Sum::none;
  /// Sums of earlier micro-steps wait for a reduction, in the buffer or in the middle memory.
  bool in_buffer = false;
  bool in_middle = false;
  /// The sum in the buffer was read from the file, which still holds it.
  bool from_file = false;

  bool is_over() const { return progress >= Progress::complete; }
};

/// Final sums that lie one after the other.
struct SumRun {
  size_t offset;
  int64_t elements;
  DType dtype;
};

inline auto is_in(int bucket) {
  return [bucket](const ParamGrad& grad) { return grad.bucket == bucket; };
}

}  // namespace weft::fsdp
