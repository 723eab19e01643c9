// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/fsdp_options.h"
#include "weft/mesh.h"
#include "weft/module.h"
#include "weft/program.h"

namespace weft {

/// The sharding of a module's parameters.
struct FullyShardOptions {
  /// Reshard after forward, and unshard again for backward: less memory, 1.5 times the traffic.
  /// Does not apply to the outermost sharded module, whose backward follows at once.
  Reshard reshard_after_forward = true;
  /// Number of modules that are unsharded early.
  int prefetch = 1;
  /// Names within the module of parameters that each rank keeps unsharded.
  std::vector<std::string> ignored = {};
  /// The same, by parameter; those that the module lacks are allowed.
  std::vector<ParameterPtr> ignored_params = {};
  Strategy strategy = Strategy::full_shard();
  MixedPrecision precision = {};
  Quantization quantization = {};
  Offload offload = {};
  /// Returns the dim along which a parameter is sharded; by default the dim that the strategy
  /// names, or 0 if the parameter lacks it. Others than 0 cost a copy of the unsharded parameter
  /// and gradient.
  std::function<int(const NamedParameter&)> shard_dim = {};
  /// Returns where a parameter is sharded; comes before `shard_dim`.
  std::function<ShardPlacement(const NamedParameter&)> shard_placement_fn = {};
  /// Takes the data-parallel axes from a larger mesh, in place of `strategy`.
  std::optional<DataParallelMeshDims> dp_mesh_dims = {};
  /// Returns the wire format of a parameter, or null.
  std::function<std::shared_ptr<AllGatherExtension>(const NamedParameter&)> extension = {};
  /// Bytes of gradients that one all-reduce takes (`ddp`), while backward continues.
  int64_t bucket_bytes = int64_t{25} << 20;
  /// Divisor of all gradients of the model, at the outputs of the outermost sharded module: terms
  /// of a loss that do not pass through them are not divided. No effect on other modules.
  /// FsdpModule::set_gradient_divide_factor is for one module.
  double gradient_divide_factor = 1;
};

/// Shards the module's parameters, except those that a module below it shards already, over the
/// axes of `mesh`, a view of its root. Hooks unshard them before forward and backward and reshard
/// them afterwards. Shard inner modules first, then the whole model. The batch must be sharded over
/// the axes of `mesh`, and the loss must be a mean over the whole batch.
/// Parameters may be laid out over other axes of the root mesh already (apply tensor parallelism
/// first). Between steps parameters may be frozen and unfrozen, when their gradients are cleared,
/// and added, replaced and removed. The next step then makes the schedule again, and the groups if
/// parameters were added, replaced or removed. A loss may depend on a parameter's `tensor()`, next
/// to the module's outputs, but not on its `value()`, and must not outlive the model.
/// std::invalid_argument, with nothing changed, if the strategy does not fit the mesh, or a
/// parameter has no dimensions or is sharded over these axes already. The first step, `materialize`
/// or query checks this again when it makes the slices, because parameters may have been replaced.
WEFT_API void fully_shard(Module& module, const DeviceMesh& mesh,
                          const FullyShardOptions& options = {});
/// The same for several modules as one group, e.g. a norm and the head behind it: unsharded before
/// the first of them runs, resharded when all have run, or the outermost sharded module has.
WEFT_API void fully_shard(const std::vector<Module*>& modules, const DeviceMesh& mesh,
                          const FullyShardOptions& options = {});

/// Returns `options` for `fully_shard` of a model with experts over `data`, the view of all axes
/// that cut tokens, of which `ep` cuts the experts too (`expert_styles`): dense parameters are
/// sharded over all of them, those of each `Experts` in `modules` over the others. A strategy of
/// several rows has one for each other axis; that of the last one is also that of `ep`.
///
/// std::invalid_argument when `data` lacks the axis or has no other, or the strategy does not fit
/// the others.
WEFT_API FullyShardOptions with_experts(FullyShardOptions options,
                                        const std::vector<Module*>& modules, const DeviceMesh& data,
                                        const std::string& ep = "ep");

/// Backwards in the scope are micro-steps before the last: gradients keep their placements between
/// micro-steps. `grad()` shows those that are Partial, and no optimizer accepts them.
class WEFT_API NoSync : NotCopied {
 public:
  /// `model` is the outermost sharded module. With `holds` false the scope has no effect.
  explicit NoSync(Module& model, bool holds = true);
  ~NoSync();

 private:
  Module& model_;
  bool before_;
};

/// Bytes received over one group of axes.
struct AxisTraffic {
  /// Names joined by "+".
  std::string axes;
  int64_t bytes = 0;
  bool operator==(const AxisTraffic&) const = default;
};

/// Bytes that FSDP allocates on this rank and receives in a training step.
struct FullyShardBytes {
  /// Slices of parameters, and gradients between micro-steps and after the last.
  int64_t parameters = 0, gradients = 0;
  /// Buffers for unsharded parameters and for gradients before their reduction.
  int64_t buffers = 0;
  /// Bytes received from other ranks in forward and backward, in all micro-steps.
  int64_t received = 0;
  std::vector<AxisTraffic> by_axes = {};
  /// Bytes copied for Shard(d > 0), or for a wire of another dtype than `compute`.
  int64_t copied = 0;
};

/// Computes the bytes of a step after an update, without memory or communication. `model` is the
/// outermost sharded module. The order is that of the last training step; that of the modules
/// before the first step has ended and after a step in another order.
WEFT_API FullyShardBytes predicted_bytes(Module& model, int micro_steps = 1);
/// Returns the bytes allocated since the model was sharded, and the traffic between the last two
/// syncs.
WEFT_API FullyShardBytes measured_bytes(Module& model);

/// The kind of step that a schedule is for.
struct StepKind {
  bool training = true;
  /// The last micro-step.
  bool sync = true;
  /// Parameters have changed since the previous step.
  bool updated = true;
};

/// Returns the actions of a step, in order: "unshard", "wait", "compute", "reshard",
/// "reduce-scatter", "all-reduce", "wait for sum of", and with tiers on disk "read", "read sums of"
/// and "write sums of", of modules, the outermost of which is "the root"; "layer0#2" is a bucket.
/// Slots are the buffers.
WEFT_API Program schedule_of(Module& model, const StepKind& kind = {});
/// Returns the schedule, one line per action, and its bytes.
WEFT_API std::string explain_schedule(Module& model, const StepKind& kind = {});

}  // namespace weft
