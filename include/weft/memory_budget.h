// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/extend/op_log.h"
#include "weft/fsdp.h"
#include "weft/optimizer.h"
#include "weft/storage.h"
#include "weft/tier.h"

namespace weft {

/// Rates of one rank of a machine, per second, while all ranks are busy.
struct Machine {
  std::string name = "cpu";
  /// Operations of matrix products, in the dtype that is computed in.
  double operations = 60e9;
  /// Bytes of memory read and written by all other ops.
  double memory_bytes = 8e9;
  /// Received from ranks of the same host, and of others.
  double host_bytes = 8e9, network_bytes = 1e9;
  /// A rank's memory; 0: not known.
  double memory = 0;
  /// A collective's wait, in seconds.
  double latency = 2e-5;
  /// Communication goes on while the rank computes; otherwise it takes the rank's own time.
  bool overlaps = false;
  /// Read from or written to files.
  double disk_bytes = 1e9;
};

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
  int64_t peak_bytes() const;
  double operations() const;
};

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

/// The tensors that a block saves for backward: its inputs; results of attention, or of all matrix
/// products too; or all that its gradient needs.
inline constexpr std::array<std::string_view, 4> kBlockPolicies = {"full", "attention", "op",
                                                                   "none"};
/// Behind a policy: what it saves rests in a tier.
inline constexpr std::string_view kOffloadsSaved = "+offload";
/// Sets what a block saves, by one of these names; what an offloading policy saves rests in `tier`.
/// std::invalid_argument for any other name.
WEFT_API void set_block_policy(Module& block, std::string_view policy, const Tier& tier = {});

/// The memory that a step of one rank may take, for all that weft allocates.
struct MemoryBudget {
  int64_t bytes = 0;
  /// A directory in whose files arrays may rest, if they must; empty: none.
  std::string directory = {};
};

/// The choices that decide the memory of a step.
struct StepChoice {
  /// The policy of each block; empty: as the model sets it.
  std::vector<std::string> blocks = {};
  /// FullyShardOptions::reshard_after_forward, where it is a flag, and prefetch.
  bool keep_gathered = false;
  int prefetch = 1;
  Offload offload = {};
  Tier state = {};
  /// Passed on to `shard_units`. Norms of gradients are summed by units, with other rounding.
  bool fine_units = false;
};

/// The fastest choice whose predicted peak fits.
struct WEFT_API MemoryPlan {
  StepChoice choice = {};
  /// The bytes of the budget, and the most that the step takes.
  int64_t allowed = 0, peak = 0;
  double seconds = 0;

  /// "blocks that save for backward: 3 their inputs, 1 everything, parameters resharded after
  /// forward, 1 gathered early".
  std::string text() const;
  /// Sets the policies of the blocks and shards the model.
  void apply(const StepModel& model, const DeviceMesh& mesh, FullyShardOptions sharding) const;
};

/// The choices that `plan_memory` may make.
struct MemoryPlanOptions {
  bool policies = true;
  /// Lets it choose whether parameters stay gathered, how many units are gathered early, how fine
  /// they are, and tiers.
  bool schedule = true;
  /// Errors begin with it.
  std::string what = "plan_memory";
  std::string cure = "use more ranks, more micro-steps or a directory for arrays on disk";
};

/// Chooses from `given`, by the cost of each choice that it tries. std::invalid_argument with the
/// least that would fit where nothing does.
WEFT_API MemoryPlan plan_memory(const std::function<StepCost(const StepChoice&)>& cost,
                                const StepChoice& given, size_t blocks, const MemoryBudget& budget,
                                const Machine& machine = {}, const MemoryPlanOptions& options = {});
/// The same for a model that `build` makes over a mesh with the axes of `mesh.root()`: the plan is
/// that of rank 0, which holds the largest parts. Ranks that call it with the same arguments choose
/// alike, without communication.
WEFT_API MemoryPlan plan_memory(const std::function<StepModel(const DeviceMesh& root)>& build,
                                const DeviceMesh& mesh, const FullyShardOptions& sharding,
                                const MemoryBudget& budget, const StepOptions& step = {},
                                const Machine& machine = {});

}  // namespace weft
