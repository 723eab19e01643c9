// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>

#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/memory_budget.h"

namespace weft {

namespace {

class MemoryPlanner {
 public:
  MemoryPlanner(const std::function<StepCost(const StepChoice&)>& cost, size_t blocks,
                const Machine& machine, int64_t allowed)
      : cost_(cost), blocks_(blocks), machine_(machine), allowed_(allowed) {}

  /// The fastest choice of policies that fits, if one does.
  std::optional<MemoryPlan> fastest(const StepChoice& choice, bool chooses_policies) {
    if (!chooses_policies) return if_fits(predicted(choice));
    const std::vector<MemoryPlan> chain = frontier(choice);
    std::optional<MemoryPlan> best;
    for (size_t i = chain.size(); i-- > 0 && !best;) {
      best = if_fits(chain[i]);
      if (!best || i + 1 == chain.size()) continue;
      best = mixed(chain[i], chain[i + 1]);
    }
    // Backward begins with the last block: where it recomputes nothing the peak may be lower.
    for (size_t i = 1; i < chain.size() && !best; ++i) {
      best = if_fits(predicted(with_last(chain[0], chain[i], 1)));
    }
    return best;
  }

  const std::optional<MemoryPlan>& smallest() const { return smallest_; }

 private:
  MemoryPlan predicted(const StepChoice& choice) {
    StepCost cost = cost_(choice);
    if (machine_.overlaps) cost.leave_out_scratch();
    MemoryPlan candidate{choice, allowed_, cost.peak_bytes(), step_seconds(cost, machine_).total};
    if (!smallest_ || candidate.peak < smallest_->peak) smallest_ = candidate;
    return candidate;
  }

  std::optional<MemoryPlan> if_fits(const MemoryPlan& candidate) const {
    if (candidate.peak > allowed_) return {};
    return candidate;
  }

  static StepChoice with_blocks(StepChoice choice, std::vector<std::string> blocks) {
    choice.blocks = std::move(blocks);
    return choice;
  }

  /// All blocks alike, in order of memory and time: those whose mixtures no other choice beats.
  std::vector<MemoryPlan> frontier(const StepChoice& choice) {
    std::vector<MemoryPlan> all;
    for (const std::string_view policy : kBlockPolicies) {
      for (const bool offloads : {false, true}) {
        if (offloads && (policy == "none" || !choice.offload.activations.offloads())) continue;
        const std::string name = concat(policy, offloads ? kOffloadsSaved : std::string_view());
        all.push_back(predicted(with_blocks(choice, std::vector<std::string>(blocks_, name))));
      }
    }
    std::ranges::stable_sort(all, {}, &MemoryPlan::peak);
    std::vector<MemoryPlan> lower;
    for (const MemoryPlan& next : all) {
      if (!lower.empty() && next.seconds >= lower.back().seconds) continue;
      while (lower.size() > 1 && is_above(lower[lower.size() - 2], lower.back(), next)) {
        lower.pop_back();
      }
      lower.push_back(next);
    }
    return lower;
  }

  /// True if mixtures of `a` and `c` are faster than `b` where they take as much memory.
  static bool is_above(const MemoryPlan& a, const MemoryPlan& b, const MemoryPlan& c) {
    const auto bytes = [](const MemoryPlan& from, const MemoryPlan& to) {
      return static_cast<double>(to.peak - from.peak);
    };
    return (b.seconds - a.seconds) * bytes(a, c) >= (c.seconds - a.seconds) * bytes(a, b);
  }

  /// The last `count` blocks like `fast`, the others like `slow`.
  static StepChoice with_last(const MemoryPlan& slow, const MemoryPlan& fast, size_t count) {
    std::vector<std::string> mixture = slow.choice.blocks;
    for (size_t i = mixture.size() - count; i < mixture.size(); ++i) {
      mixture[i] = fast.choice.blocks[i];
    }
    return with_blocks(slow.choice, std::move(mixture));
  }

  /// Makes as many of the last blocks like `fast` as fit; backward frees what they saved first.
  MemoryPlan mixed(const MemoryPlan& fits, const MemoryPlan& fast) {
    MemoryPlan best = fits;
    size_t least = 0, most = blocks_;
    while (most - least > 1) {
      const size_t middle = (least + most) / 2;
      const MemoryPlan candidate = predicted(with_last(fits, fast, middle));
      if (candidate.peak > allowed_) {
        most = middle;
        continue;
      }
      least = middle;
      if (candidate.seconds < best.seconds) best = candidate;
    }
    return best;
  }

  const std::function<StepCost(const StepChoice&)>& cost_;
  const size_t blocks_;
  const Machine& machine_;
  const int64_t allowed_;
  std::optional<MemoryPlan> smallest_;
};

}  // namespace

/// Schedules of one choice of tiers: the fastest first. Finer units save memory only where they are
/// resharded.
static void add_schedules(const StepChoice& given, std::vector<StepChoice>& all) {
  for (const int prefetch : {1, 0}) {
    for (const auto& [keeps, fine] : {std::pair(true, false), {false, false}, {false, true}}) {
      if (given.keep_gathered && !keeps) continue;
      all.push_back(given);
      all.back().keep_gathered = keeps;
      all.back().prefetch = prefetch;
      all.back().fine_units = fine || given.fine_units;
    }
  }
}

/// Tiers from the fastest on: in memory; then what moves least in a step first.
static std::vector<std::vector<StepChoice>> schedules_of(const StepChoice& given, bool chooses,
                                                         const std::string& directory) {
  if (!chooses) return {{given}};
  std::vector<std::vector<StepChoice>> rungs;
  StepChoice choice = given;
  const auto add = [&] { add_schedules(choice, rungs.emplace_back()); };
  add();
  if (directory.empty()) return rungs;
  const Tier disk = Tier::disk(directory);
  for (Tier* tier : {&choice.offload.activations, &choice.state, &choice.offload.gradients,
                     &choice.offload.parameters}) {
    if (tier->offloads()) continue;
    *tier = disk;
    add();
  }
  return rungs;
}

MemoryPlan plan_memory(const std::function<StepCost(const StepChoice&)>& cost,
                       const StepChoice& given, size_t blocks, const MemoryBudget& budget,
                       const Machine& machine, const MemoryPlanOptions& options) {
  // Models that are built and run draw random numbers.
  const ContextSetting<&Context::random> random(Context::current().random);
  MemoryPlanner planner(cost, blocks, machine, budget.bytes);
  std::optional<MemoryPlan> best;
  for (const auto& rung : schedules_of(given, options.schedule, budget.directory)) {
    const std::optional<MemoryPlan> of_less_offload = best;
    for (const StepChoice& schedule : rung) {
      // A step without prefetch takes longer than predicted: only where nothing else fits.
      if (best && schedule.prefetch == 0) continue;
      const std::optional<MemoryPlan> one = planner.fastest(schedule, options.policies);
      if (one && (!best || one->seconds < best->seconds)) best = one;
    }
    // More on disk costs more: once it does not help, the next does not either.
    if (of_less_offload && best->seconds >= of_less_offload->seconds) break;
  }
  if (best) return *best;
  const MemoryPlan& least = *planner.smallest();
  fail(options.what, ": budget is ", budget.bytes, " bytes, expected at least ", least.peak,
       ", which take ", least.text(), "; or ", options.cure);
}

static FullyShardOptions sharding_of(const StepChoice& choice, FullyShardOptions sharding) {
  if (sharding.reshard_after_forward.axis().empty() &&
      sharding.reshard_after_forward.ranks() == 0) {
    sharding.reshard_after_forward = !choice.keep_gathered;
  }
  sharding.prefetch = choice.prefetch;
  sharding.offload = choice.offload;
  // The policies say which blocks do.
  sharding.offload.activations = {};
  return sharding;
}

static void set_policies(const StepModel& model, const StepChoice& choice) {
  for (size_t i = 0; i < choice.blocks.size(); ++i) {
    set_block_policy(*model.blocks[i], choice.blocks[i], choice.offload.activations);
  }
}

MemoryPlan plan_memory(const std::function<StepModel(const DeviceMesh&)>& build,
                       const DeviceMesh& mesh, const FullyShardOptions& sharding,
                       const MemoryBudget& budget, const StepOptions& step,
                       const Machine& machine) {
  const DeviceMesh root = mesh.root();
  std::vector<MeshAxis> axes;
  std::vector<std::string_view> names;
  for (int axis = 0; axis < root.ndim(); ++axis) {
    axes.push_back({root.axis_name(axis), root.axis_size(axis)});
  }
  for (int axis = 0; axis < mesh.ndim(); ++axis) names.push_back(mesh.axis_name(axis));
  const DeviceMesh fake(fake_world(0, root.size(), root.size(), !machine.overlaps), axes);
  const DeviceMesh data = fake.view(names);
  const size_t blocks = build(fake).blocks.size();
  const auto cost = [&](const StepChoice& choice) {
    const auto build_chosen = [&] {
      StepModel model = build(fake);
      set_policies(model, choice);
      return model;
    };
    return step_cost(build_chosen, data, sharding_of(choice, sharding),
                     {.micro_steps = step.micro_steps,
                      .state = choice.state,
                      .optimizer = step.optimizer,
                      .fine_units = choice.fine_units});
  };
  const StepChoice given{.keep_gathered = !sharding.reshard_after_forward.frees(),
                         .prefetch = sharding.prefetch,
                         .offload = sharding.offload,
                         .state = step.state,
                         .fine_units = step.fine_units};
  return plan_memory(cost, given, blocks, budget, machine);
}

void MemoryPlan::apply(const StepModel& model, const DeviceMesh& mesh,
                       FullyShardOptions sharding) const {
  if (!choice.blocks.empty() && choice.blocks.size() != model.blocks.size()) {
    fail("memory plan: number of blocks is ", model.blocks.size(), ", expected ",
         choice.blocks.size(), ", those of the model that was planned");
  }
  set_policies(model, choice);
  shard_units(model, mesh, sharding_of(choice, std::move(sharding)), choice.fine_units);
}

void set_block_policy(Module& block, std::string_view policy, const Tier& tier) {
  const std::string given(policy);
  const bool offloads = policy.ends_with(kOffloadsSaved);
  if (offloads) policy.remove_suffix(kOffloadsSaved.size());
  if (std::ranges::find(kBlockPolicies, policy) == kBlockPolicies.end()) {
    fail("set_block_policy: policy is ", in_quotes(given),
         ", expected full, attention, op or none, and +offload behind it");
  }
  std::vector<std::string> kept;
  if (policy == "attention") kept = {"attention"};
  if (policy == "op") kept = costly_ops();
  block.set_recompute(policy != "none", std::move(kept));
  block.offload_activations(offloads ? tier : Tier());
}

/// Names what a policy saves.
static std::string_view saved_by(std::string_view policy) {
  return policy == "full"        ? "their inputs"
         : policy == "attention" ? "and attention"
         : policy == "op"        ? "and products"
                                 : "everything";
}

std::string MemoryPlan::text() const {
  std::map<std::string, int> blocks;
  for (const std::string& policy : choice.blocks) ++blocks[policy];
  std::string text = choice.blocks.empty() ? "blocks that save what they are set to,"
                                           : "blocks that save for backward:";
  for (const std::string_view policy : kBlockPolicies) {
    for (const std::string_view offload : {std::string_view(), kOffloadsSaved}) {
      const int count = blocks[concat(policy, offload)];
      if (count == 0) continue;
      const std::string_view where = offload.empty() ? "" : " (in a tier)";
      text += concat(' ', count, ' ', saved_by(policy), where, ',');
    }
  }
  text.pop_back();
  text += choice.keep_gathered ? ", parameters kept gathered" : ", parameters resharded";
  text += concat(" after forward, ", choice.prefetch, " gathered early");
  if (choice.fine_units) text += ", attention and feed-forward apart";
  for (const auto& [what, tier] : {std::pair<const char*, const Tier&>("state", choice.state),
                                   {"gradients", choice.offload.gradients},
                                   {"parameters", choice.offload.parameters}}) {
    if (tier.offloads()) text += concat(", ", what, " on ", tier.is_disk() ? "disk" : "the host");
  }
  return text;
}

}  // namespace weft
