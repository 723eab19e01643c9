// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/extend/op_log.h"
#include "weft/fsdp.h"
#include "weft/machine.h"
#include "weft/optimizer.h"
#include "weft/pipeline_program.h"
#include "weft/storage.h"
#include "weft/tier.h"
#include "weft/transformer_config.h"

namespace weft {

/// A model as a planner builds it: declared, without memory, not sharded over the axes of data.
struct StepModel {
  std::shared_ptr<Module> model;
  /// Parts that may recompute, in the order of forward.
  std::vector<Module*> blocks;
  /// Parts that are sharded before the model, each a group of modules; empty: each block.
  std::vector<std::vector<Module*>> units = {};
  /// The axis of data that cuts experts too (`with_experts`); empty: none.
  std::string expert_axis = {};
  /// Runs forward and backward of one micro-step with inputs on `meta`.
  std::function<void()> micro_step = {};
};

struct StepOptions {
  int micro_steps = 1;
  Tier state = {};  ///< The tier in which the optimizer's state rests.
  /// Makes the optimizer whose state is counted; empty: AdamW.
  std::function<std::unique_ptr<Optimizer>(std::vector<NamedParameter>)> optimizer = {};
  /// Sharded as `shard_units` says.
  bool fine_units = false;
};

/// Bytes that a rank's experts have and receive, in all layers.
struct ExpertBytes {
  /// Parameters at rest.
  int64_t parameters = 0;
  /// Tokens that a step's forward brings to experts and back, and all that backward moves for them.
  int64_t dispatch = 0, combine = 0, backward = 0;
};

/// Bytes that a rank receives over axes, in a step.
struct AxisCost {
  std::string axes;
  /// The ranks that differ along the axes are of several hosts.
  bool crosses_hosts = false;
  /// "parameters and gradients", "activations" or "tokens of experts".
  const char* of = "";
  int64_t bytes = 0;
  int64_t collectives = 0;
};

/// Movements in parts that are alike, and their number in a step.
struct SplitCost {
  SplitMovement movement;
  int64_t calls = 0;
};

/// Cost of one training step of one rank, computed without allocation or communication.
struct WEFT_API StepCost {
  /// Most bytes at once, by purpose.
  std::array<int64_t, kPurposes> memory = {};
  std::vector<AxisCost> traffic = {};
  std::vector<OpWork> work = {};
  /// Activations that move while products of other parts are computed; also part of `traffic`.
  std::vector<SplitCost> splits = {};
  FullyShardBytes sharding = {};
  ExpertBytes experts = {};
  /// Set by the caller, or else no travel of tokens counts as hidden: operations in forward of
  /// shared experts and of those that tokens choose; `MoEConfig::chunks`.
  double shared_operations = 0, expert_operations = 0;
  int64_t expert_chunks = 1;
  /// Elements of this rank that the optimizer updates.
  int64_t updated_elements = 0;
  /// Bytes written to and read from files.
  int64_t disk_bytes = 0;

  /// Leaves out the scratch memory for a GPU, whose products take no copies of their operands.
  void leave_out_scratch() { memory[static_cast<size_t>(Purpose::other)] = 0; }
  /// Adds the cost of another stage of the same rank; activations are counted elsewhere.
  void add_stage(const StepCost& stage);
  int64_t peak_bytes() const;
  double operations() const;
  /// Bytes received from ranks of other hosts, or of the same.
  int64_t received(bool across_hosts) const;
};

/// Returns the cost of a model by those of models with few of its layers, where layers of the same
/// kinds add the same; else by the whole.
WEFT_API StepCost cost_of_layers(const TransformerConfig& config,
                                 const std::function<StepCost(const TransformerConfig&)>& cost_of);
/// Counts as training_operations_a_token does, but of attention only what a mask and windows leave:
/// the operations that a step needs, which MFU counts.
WEFT_API double needed_operations_a_token(const TransformerConfig& config, int64_t sequence);
/// Returns the model without its layers from number `layers` on.
WEFT_API TransformerConfig with_layers(TransformerConfig config, int64_t layers);

/// Predicts a step of the model that `build` makes: shards it over the axes of `mesh`, a mesh of a
/// `fake_world` or a view of one, and runs a micro-step on `meta`.
WEFT_API StepCost step_cost(const std::function<StepModel()>& build, const DeviceMesh& mesh,
                            const FullyShardOptions& sharding, const StepOptions& step = {});
/// Calls fully_shard on the units of a model and then on the model. With `fine`, attention and
/// feed-forward of a block are units apart from the rest of it: less is gathered at once.
WEFT_API void shard_units(const StepModel& model, const DeviceMesh& mesh,
                          const FullyShardOptions& sharding, bool fine = false);

/// Seconds of a step: of computing, of communication by itself, of the disk by itself, and of all
/// as they overlap.
struct StepSeconds {
  double compute = 0, communication = 0, total = 0, disk = 0;
  /// The communication in parts that products of other parts hide.
  double hidden_by_parts = 0;
  /// The time of tokens' travel to experts and back, and the part that computing does not hide.
  double tokens = 0, tokens_exposed = 0;
};
WEFT_API StepSeconds step_seconds(const StepCost& cost, const Machine& machine);

/// The cost of one stage of a pipeline, and the bytes of a microbatch's output.
struct StageCost {
  StepCost cost;
  int64_t output = 0;
};
/// The step of a pipeline: the cost and the seconds of each rank along its axis, each with the time
/// of the whole as its total, and the part of all ranks' time in which they wait.
struct PipelineStepCost {
  std::vector<StepCost> costs;
  std::vector<StepSeconds> seconds;
  double bubble = 0;
};
/// Predicts it from the costs of its stages; `times` has the shares of a stage's time.
WEFT_API PipelineStepCost pipeline_step_cost(const PipelineProgram& program,
                                             const std::vector<StageCost>& stages,
                                             PipelineTimes times, const Machine& machine,
                                             const std::string& axis, bool crosses_hosts);

}  // namespace weft
