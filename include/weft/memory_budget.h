// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/step_cost.h"
#include "weft/tier.h"

namespace weft {

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
