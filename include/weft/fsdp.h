// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dtype.h"
#include "weft/export.h"
#include "weft/mesh.h"
#include "weft/module.h"

namespace weft {

/// Where parameters, their gradients and the optimizer's state are along one axis of a mesh.
struct StrategyRow {
  /// Shard: gathered at each use. Replicate: whole, made so again after each update.
  Placement parameter;
  /// Between micro-steps. Shard: reduced in each. Partial: each rank adds up its own until the
  /// sync.
  Placement gradient;
  /// Of the optimizer's state, and so of what it updates. Shard: each rank updates its part.
  Placement state;
  bool operator==(const StrategyRow&) const = default;
};

/// A row for each axis of the mesh given to fully_shard; one row alone serves all its axes. Bytes
/// that a rank receives for A micro-steps, in units of the parameters x (N - 1) / N: ddp 2, zero1
/// 2, zero2 A + 1, full_shard 3 A (2 A when parameters stay whole after forward).
struct WEFT_API Strategy {
  std::string name;
  std::vector<StrategyRow> rows;

  /// S / S / S; FSDP1's FULL_SHARD, ZeRO 3.
  static Strategy full_shard();
  /// R / S / S.
  static Strategy zero2();
  /// R / P / S.
  static Strategy zero1();
  /// R / P / R.
  static Strategy ddp();
  /// Of two axes: ddp across the first, full_shard within the second; the gradients' sum across
  /// waits for the sync.
  static Strategy hsdp();
  /// By these names; std::invalid_argument lists them.
  static Strategy named(std::string_view name);
};

/// What becomes of whole parameters after forward: freed, kept until their gradients are complete,
/// or kept in parts by the ranks along one axis of several that shard them.
class WEFT_API Reshard {
 public:
  Reshard(bool frees) : frees_(frees) {}
  Reshard(std::string axis) : axis_(std::move(axis)) {}
  Reshard(const char* axis) : axis_(axis) {}
  bool frees() const { return frees_; }
  const std::string& axis() const { return axis_; }

 private:
  bool frees_ = true;
  std::string axis_;
};

/// Dtypes of floating parameters by what they are for.
struct MixedPrecision {
  /// Of what the optimizer changes; as declared unless given.
  std::optional<DType> storage = {};
  /// Of what forward and backward compute with; that of storage unless given.
  std::optional<DType> compute = {};
  /// Of parameters on the wire; as `compute` unless given, and another one costs a pass over the
  /// whole parameters.
  std::optional<DType> gather = {};
  /// Of gradients on the wire; as `accumulate` unless given. A backward writes them so, and adds up
  /// in it what waits for the sync as Partial; ranks' sums are made in f32, unless by NCCL.
  std::optional<DType> reduce = {};
  /// Of reduced gradients; that of storage unless given.
  std::optional<DType> accumulate = {};
  /// Of ignored parameters; as declared unless given.
  std::optional<DType> buffers = {};
  /// What floating inputs and outputs of the module are cast to; left alone unless given.
  std::optional<DType> inputs = {};
  std::optional<DType> outputs = {};
};

/// What rests in pinned memory of the host while a GPU computes: slices, which each gather brings
/// from there; reduced gradients, which go there during backward. See AdamWOptions::offload, too.
struct Offload {
  bool parameters = false;
  bool gradients = false;
};

/// How a module's parameters are sharded.
struct FullyShardOptions {
  /// Free the whole parameters after forward and gather them again for backward: less memory, half
  /// as much traffic again. Not for the outermost sharded module, whose backward follows at once.
  Reshard reshard_after_forward = true;
  /// Modules whose parameters are gathered ahead.
  int prefetch = 1;
  /// Parameters (names within the module) that each rank keeps whole.
  std::vector<std::string> ignored = {};
  Strategy strategy = Strategy::full_shard();
  MixedPrecision precision = {};
  Offload offload = {};
  /// The dim along which a parameter is cut; the rows' unless given, 0 where it has no such dim.
  /// Another one than 0 costs a copy of the whole parameter and gradient.
  std::function<int(const NamedParameter&)> shard_dim = {};
  /// Gradients of whole parameters are reduced together, so many bytes at a time, while backward
  /// goes on.
  int64_t bucket_bytes = int64_t{25} << 20;
  /// The gradients are divided by it, from the outputs of the outermost sharded module on.
  double gradient_divide_factor = 1;
};

/// Shards the module's parameters (those that no module below it sharded before) over the axes of
/// `mesh`, a view of its root: whole when used, a slice at rest. Shard the parts first, then the
/// whole model. Frozen parameters are those that are frozen now: to freeze or thaw one later makes
/// the next step throw. Parameters may be laid out over other axes of the root mesh already (tensor
/// parallelism comes first); these axes cut what is left. The batch is sharded over the axes of
/// `mesh`, and the loss is a mean over the whole batch. A loss may depend on a parameter's
/// `tensor()` beside the module's outputs, but not on its `value()`, and must not outlive the
/// model. std::invalid_argument, with nothing changed, when the strategy does not fit the mesh, a
/// parameter has no dims or was sharded over these axes before. The same is looked at again when
/// slices are made, in the first step, `materialize` or question: parameters may have been
/// exchanged meanwhile.
WEFT_API void fully_shard(Module& module, const DeviceMesh& mesh,
                          const FullyShardOptions& options = {});

/// Backwards in the scope are micro-steps but the last: gradients stay as the strategy has them
/// between micro-steps. Those that are Partial there show as `grad()` so, and no optimizer takes
/// them.
class WEFT_API NoSync {
 public:
  /// `model` is the outermost sharded module. With `holds` false the scope does nothing.
  explicit NoSync(Module& model, bool holds = true);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  Module& model_;
  bool before_;
};

/// Bytes received over the axes that differ among the members of a group.
struct AxisTraffic {
  /// Names joined by "+".
  std::string axes;
  int64_t bytes = 0;
  bool operator==(const AxisTraffic&) const = default;
};

/// Bytes that sharding owns on this rank, and that it moves in a training step.
struct FullyShardBytes {
  /// Slices of parameters at rest, gradients between micro-steps and at rest.
  int64_t parameters = 0;
  int64_t gradients = 0;
  /// Most bytes of gathered parameters and of gradients that are not reduced, at once.
  int64_t buffers = 0;
  /// Received from other ranks in forward and backward, of all micro-steps.
  int64_t received = 0;
  std::vector<AxisTraffic> by_axes = {};
  /// Copied of whole parameters and gradients, for Shard(d > 0) or a wire that is not computed in.
  int64_t copied = 0;
};

/// What the schedule of a model will take, by arithmetic: no memory, no communication. `model` is
/// the outermost sharded module; its schedule is that of the last training step, before the first
/// one that of the modules' order. Parameters have changed before the step.
WEFT_API FullyShardBytes predicted_bytes(Module& model, int micro_steps = 1);
/// What it took: the most since the model was sharded, and the traffic up to the last sync.
WEFT_API FullyShardBytes measured_bytes(Module& model);

/// Which step a schedule is for.
struct StepKind {
  bool training = true;
  /// The last micro-step.
  bool sync = true;
  /// Parameters have changed since the step before.
  bool updated = true;
};

/// One line of a schedule.
struct ScheduledAction {
  enum class Kind : uint8_t { gather, wait, compute, free, scatter, all_reduce, wait_reduced } kind;
  bool backward = false;
  /// The path of a module, "" for the outermost; "#2" after it for its bucket 2.
  std::string module;
  /// Where bytes move, what arrives and which numbered buffer is taken or given, -1 for none.
  std::string axes;
  int64_t bytes = 0;
  int buffer = -1;
};

WEFT_API std::vector<ScheduledAction> schedule_of(Module& model, const StepKind& kind = {});
/// The schedule, a line a step, and what it takes.
WEFT_API std::string explain_schedule(Module& model, const StepKind& kind = {});

}  // namespace weft
