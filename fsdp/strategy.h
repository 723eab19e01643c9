// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/communicator.h"
#include "weft/fsdp.h"

namespace weft::fsdp {

/// The ranks that differ along some axes only, in the order of those axes; without axes, this rank
/// alone.
struct AxisGroup {
  /// Names joined by "+".
  std::string axes;
  std::vector<int> sizes;
  /// Set if the group has more than one rank.
  Communicator communicator;
  int rank = 0;
  int size = 1;
};
/// The ranks of a group, in order.
std::vector<int> numbers_of(const AxisGroup& ranks);

/// One collective between the gradients that backward writes and those that the optimizer reads.
struct Reduction {
  AxisGroup ranks;
  /// Reduce-scatter, else all-reduce.
  bool scatters;
  /// Runs only in the last micro-step.
  bool at_sync;
};

/// The use that a strategy makes of the axes of a mesh. The optimizer's state is sharded over
/// `sharded`. Each use gathers parameters over the first `at_use` of these axes; the others are
/// gathered earlier and kept. Each micro-step reduces gradients over the first `each_step` axes;
/// the sync reduces them over the other axes and over `replicas`.
struct Roles {
  DeviceMesh mesh;
  /// Listed from the outermost axis to the innermost.
  std::vector<std::string> sharded;
  /// Dimension along which parameters that have it are sharded.
  int dim = 0;
  size_t at_use = 0;
  /// True: what is gathered earlier is kept until the parameters change. False: until the gradients
  /// of the step are complete.
  bool keeps_gathered = true;
  size_t each_step = 0;
  std::vector<std::string> replicas;
  /// If not 0, the only axis of `sharded` is gathered in two levels, at each use over so many
  /// ranks, a stride apart, and before that over the neighbouring ranks between them.
  int ranks_at_use = 0;

  /// The group over axes `first` to `last` (excluded) of `sharded`.
  AxisGroup group(size_t first, size_t last) const;
  /// The group over these axes of `mesh`.
  AxisGroup group(const std::vector<std::string>& names) const;
  /// The ranks over which each use gathers, and those over which parameters are gathered earlier
  /// and kept.
  AxisGroup use_group() const;
  AxisGroup kept_group() const;
};

/// std::invalid_argument if the rows do not fit the mesh, if a row contradicts itself, or if two
/// rows need opposite orders of sharding.
Roles roles_of(const DeviceMesh& mesh, const Strategy& strategy, const Reshard& reshard);

/// The ranks of joined axes in two groups, over which codes move one after the other: `within`
/// along the axes of fast links, `across` along the others. Rank r of the joined axes is rank
/// `rank_within[r]` of its `within`; the ranks r of one `rank_within` are in the order of `across`.
struct Stages {
  AxisGroup within, across;
  std::vector<int> rank_within;

  /// The ranks of the joined axes by their rank within, then by that across.
  std::vector<int> order() const;
};

/// Returns the stages in which codes move over axes `first` to `last` (excluded) of
/// `roles.sharded`; nothing if they move over all of these axes at once.
std::optional<Stages> stages_of(const Roles& roles, size_t first, size_t last,
                                const Quantization& quantization);

/// Dtypes of one parameter by purpose; a parameter that is not floating keeps its declared dtype.
struct ParamTypes {
  DType storage, compute, gather, reduce, accumulate;
};

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

}  // namespace weft::fsdp
