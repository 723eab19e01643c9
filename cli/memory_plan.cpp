// SPDX-License-Identifier: Apache-2.0
#include "cli/memory_plan.h"

#include <algorithm>
#include <optional>

#include "cli/offload.h"
#include "weft/communicator.h"
#include "weft/error.h"

namespace weft::cli {

bool is_planned(const ParallelOptions& options) {
  return !options.memory.empty() || budget_of(options.recompute);
}

/// The options with what a plan chose.
static ParallelOptions with(const StepChoice& choice, ParallelOptions options) {
  options.blocks = choice.blocks;
  options.keep_gathered = choice.keep_gathered;
  options.prefetch = choice.prefetch;
  options.fine_units = choice.fine_units;
  options.offload.clear();
  const auto add = [&](std::string_view what, const Tier& tier) {
    if (tier.offloads()) options.offload.push_back(concat(what, '=', tier));
  };
  add("parameters", choice.offload.parameters);
  add("gradients", choice.offload.gradients);
  add("state", choice.state);
  add("activations", choice.offload.activations);
  return options;
}

static StepChoice choice_of(const ParallelOptions& options) {
  const auto tier = [&](const char* what) { return tier_of(options.offload, what); };
  return {.blocks = options.blocks,
          .keep_gathered = options.keep_gathered,
          .prefetch = options.prefetch,
          .offload = {tier("parameters"), tier("gradients"), tier("activations")},
          .state = tier("state"),
          .fine_units = options.fine_units};
}

static std::string load_of_experts(const TransformerConfig& config,
                                   const ParallelOptions& options) {
  const auto axes = parsed_axes(options.mesh);
  if (config.experts == 0 || std::ranges::find(axes, kExpertAxis, &MeshAxis::name) == axes.end()) {
    return "";
  }
  if (options.imbalance == 1) return " with experts loaded evenly";
  return concat(" with an imbalance of ", options.imbalance);
}

MemoryPlan planned(const TransformerConfig& config, const ParallelOptions& options, int ranks,
                   int ranks_per_host, const Machine& machine) {
  const std::optional<int64_t> budget = budget_of(options.recompute);
  MemoryBudget allowed{budget.value_or(INT64_MAX), tier_of(options.offload, "auto").directory()};
  if (!options.memory.empty()) {
    allowed.bytes = std::min(allowed.bytes, bytes_from("--memory", options.memory));
  }
  const auto cost = [&](const StepChoice& choice) {
    const Communicator world = fake_world(0, ranks, ranks_per_host, !machine.overlaps);
    return step_cost(world, config, with(choice, options), ranks_per_host);
  };
  const bool has_memory = !options.memory.empty();
  // A choice of the user's stays.
  const MemoryPlanOptions may{
      .policies = budget || options.recompute == "none",
      .schedule = has_memory,
      .what = has_memory ? "--memory" : "--activation-checkpointing budget",
      .cure = "use more ranks, a higher --accumulate or --offload auto=disk:DIR"};
  MemoryPlan plan{weft::plan_memory(cost, choice_of(options), static_cast<size_t>(config.layers),
                                    allowed, machine, may),
                  {},
                  load_of_experts(config, options)};
  plan.options = with(plan.choice, options);
  return plan;
}

}  // namespace weft::cli
