// SPDX-License-Identifier: Apache-2.0
#include "cli/memory_plan.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "weft/communicator.h"
#include "weft/error.h"

namespace weft::cli {

static constexpr std::string_view kBudget = "budget=";

std::string_view policy_of(std::string_view choice, size_t index) {
  if (choice == "selective") return index % 2 == 0 ? "full" : "none";
  return choice.starts_with(kBudget) ? "none" : choice;
}

int64_t bytes_from(std::string_view flag, const std::string& text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const char* last = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), last, number);
  const std::string_view unit(stop, static_cast<size_t>(last - stop));
  const auto known = std::ranges::find(kUnits, unit, [](const auto& one) { return one.first; });
  const bool good = error == std::errc() && known != std::end(kUnits);
  const double bytes = good ? number * known->second : 0;
  if (!good || !(bytes >= 1) || bytes > 0x1p62) {
    fail(flag, " is ", in_quotes(text), ", expected bytes such as 2GiB, 512MiB or 1000000");
  }
  return static_cast<int64_t>(bytes);
}

std::optional<int64_t> budget_of(const std::string& choice) {
  static constexpr std::string_view kChoices[] = {"none", "full", "selective", "op"};
  if (choice.starts_with(kBudget)) {
    return bytes_from("--activation-checkpointing budget", choice.substr(kBudget.size()));
  }
  if (std::ranges::find(kChoices, choice) == std::end(kChoices)) {
    fail("--activation-checkpointing is ", in_quotes(choice),
         ", expected none, full, selective, op or budget=BYTES");
  }
  return {};
}

bool is_planned(const ParallelOptions& options) {
  return !options.memory.empty() || budget_of(options.recompute);
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
  MemoryBudget allowed{budget.value_or(INT64_MAX), options.free.directory()};
  if (!options.memory.empty()) {
    allowed.bytes = std::min(allowed.bytes, bytes_from("--memory", options.memory));
  }
  const auto cost = [&](const StepChoice& choice) {
    const Communicator world = fake_world(0, ranks, ranks_per_host, !machine.overlaps);
    ParallelOptions chosen = options;
    chosen.choice = choice;
    return step_cost(world, config, chosen, ranks_per_host);
  };
  const bool has_memory = !options.memory.empty();
  // A choice of the user's stays.
  const MemoryPlanOptions may{
      .policies = budget || options.recompute == "none",
      .schedule = has_memory,
      .what = has_memory ? "--memory" : "--activation-checkpointing budget",
      .cure = "use more ranks, a higher --accumulate or --offload auto=disk:DIR"};
  MemoryPlan plan{weft::plan_memory(cost, options.choice, static_cast<size_t>(config.layers),
                                    allowed, machine, may),
                  options, load_of_experts(config, options)};
  plan.options.choice = plan.choice;
  return plan;
}

}  // namespace weft::cli
