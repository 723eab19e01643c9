// SPDX-License-Identifier: Apache-2.0
#include "cli/memory_plan.h"

#include <algorithm>
#include <map>
#include <optional>

#include "cli/block_recompute.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"

namespace weft::cli {

namespace {

/// A choice, and what it is predicted to take.
struct Candidate {
  ParallelOptions options;
  int64_t bytes = 0;
  double seconds = 0;
};

class MemoryPlanner {
 public:
  MemoryPlanner(const TransformerConfig& config, int ranks, int ranks_per_host,
                const Machine& machine, int64_t allowed)
      : config_(config),
        ranks_(ranks),
        ranks_per_host_(ranks_per_host),
        machine_(machine),
        allowed_(allowed) {}

  /// The fastest choice of policies that fits, if one does.
  std::optional<Candidate> fastest(const ParallelOptions& options, bool chooses_policies) {
    if (!chooses_policies) return if_fits(predicted(options));
    const std::vector<Candidate> chain = frontier(options);
    std::optional<Candidate> best;
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

  const std::optional<Candidate>& smallest() const { return smallest_; }

 private:
  Candidate predicted(const ParallelOptions& options) {
    const Communicator world = fake_world(0, ranks_, ranks_per_host_, !machine_.overlaps);
    StepCost cost = step_cost(world, config_, options, ranks_per_host_);
    if (machine_.overlaps) cost.leave_out_scratch();
    Candidate candidate{options, cost.peak_bytes(), step_seconds(cost, machine_).total};
    if (!smallest_ || candidate.bytes < smallest_->bytes) smallest_ = candidate;
    return candidate;
  }

  std::optional<Candidate> if_fits(const Candidate& candidate) const {
    if (candidate.bytes > allowed_) return {};
    return candidate;
  }

  ParallelOptions with_blocks(ParallelOptions options, std::vector<std::string> blocks) const {
    options.blocks = std::move(blocks);
    return options;
  }

  /// All blocks alike, in order of memory and time: those whose mixtures no other choice beats.
  std::vector<Candidate> frontier(const ParallelOptions& options) {
    std::vector<Candidate> all;
    for (const std::string_view policy : kBlockPolicies) {
      const std::vector<std::string> blocks(static_cast<size_t>(config_.layers),
                                            std::string(policy));
      all.push_back(predicted(with_blocks(options, blocks)));
    }
    std::ranges::stable_sort(all, {}, &Candidate::bytes);
    std::vector<Candidate> lower;
    for (const Candidate& next : all) {
      if (!lower.empty() && next.seconds >= lower.back().seconds) continue;
      while (lower.size() > 1 && is_above(lower[lower.size() - 2], lower.back(), next)) {
        lower.pop_back();
      }
      lower.push_back(next);
    }
    return lower;
  }

  /// True if mixtures of `a` and `c` are faster than `b` where they take as much memory.
  static bool is_above(const Candidate& a, const Candidate& b, const Candidate& c) {
    const auto bytes = [](const Candidate& from, const Candidate& to) {
      return static_cast<double>(to.bytes - from.bytes);
    };
    return (b.seconds - a.seconds) * bytes(a, c) >= (c.seconds - a.seconds) * bytes(a, b);
  }

  /// The last `count` blocks like `fast`, the others like `slow`.
  ParallelOptions with_last(const Candidate& slow, const Candidate& fast, size_t count) const {
    std::vector<std::string> mixture = slow.options.blocks;
    for (size_t i = mixture.size() - count; i < mixture.size(); ++i) {
      mixture[i] = fast.options.blocks[i];
    }
    return with_blocks(slow.options, std::move(mixture));
  }

  /// As many of the last blocks like `fast` as fit; backward frees what they saved first.
  Candidate mixed(const Candidate& fits, const Candidate& fast) {
    Candidate best = fits;
    const auto blocks = fits.options.blocks.size();
    size_t least = 0, most = blocks;
    while (most - least > 1) {
      const size_t middle = (least + most) / 2;
      const Candidate candidate = predicted(with_last(fits, fast, middle));
      if (candidate.bytes > allowed_) {
        most = middle;
        continue;
      }
      least = middle;
      if (candidate.seconds < best.seconds) best = candidate;
    }
    return best;
  }

  const TransformerConfig& config_;
  const int ranks_, ranks_per_host_;
  const Machine& machine_;
  const int64_t allowed_;
  std::optional<Candidate> smallest_;
};

}  // namespace

Machine planning_machine(std::string_view device_name, const std::string& dtype) {
  if (const auto gpu = machine_of_device(device_name, dtype)) return *gpu;
  return {.name = "cpu",
          .operations = 60e9,
          .memory_bytes = 8e9,
          .host_bytes = 8e9,
          .network_bytes = 1e9,
          .latency = 2e-5};
}

bool is_planned(const ParallelOptions& options) {
  return !options.memory.empty() || budget_of(options.recompute);
}

/// The choices besides those of policies: the fastest first.
static std::vector<ParallelOptions> schedules_of(const ParallelOptions& options) {
  if (options.memory.empty()) return {options};
  std::vector<ParallelOptions> all;
  for (const bool keeps : {true, false}) {
    if (options.keep_gathered && !keeps) continue;
    for (const int prefetch : {1, 0}) {
      all.push_back(options);
      all.back().keep_gathered = keeps;
      all.back().prefetch = prefetch;
    }
  }
  return all;
}

[[noreturn]] static void fail_memory(const ParallelOptions& options, int64_t allowed,
                                     const Candidate& smallest) {
  const MemoryPlan least{smallest.options, allowed, smallest.bytes};
  fail(options.memory.empty() ? "--activation-checkpointing budget" : "--memory", " is ", allowed,
       " bytes, expected at least ", smallest.bytes, ", which take ", least.text(),
       "; or use more ranks, a higher --accumulate or --offload state=disk:DIR");
}

MemoryPlan planned(const TransformerConfig& config, const ParallelOptions& options, int ranks,
                   int ranks_per_host, const Machine& machine) {
  const std::optional<int64_t> budget = budget_of(options.recompute);
  int64_t allowed = budget.value_or(INT64_MAX);
  if (!options.memory.empty()) {
    allowed = std::min(allowed, bytes_from("--memory", options.memory));
  }
  // A choice of the user's stays.
  const bool chooses_policies = budget || options.recompute == "none";
  const RandomState before = Context::current().random;
  MemoryPlanner planner(config, ranks, ranks_per_host, machine, allowed);
  std::optional<Candidate> best;
  for (const ParallelOptions& schedule : schedules_of(options)) {
    // Without prefetch a step takes longer than predicted: only where nothing else fits.
    if (best && schedule.prefetch == 0) continue;
    const std::optional<Candidate> one = planner.fastest(schedule, chooses_policies);
    if (one && (!best || one->seconds < best->seconds)) best = one;
  }
  Context::current().random = before;
  if (!best) fail_memory(options, allowed, *planner.smallest());
  return {best->options, allowed, best->bytes};
}

std::string MemoryPlan::text() const {
  std::map<std::string_view, int> blocks;
  for (const std::string& policy : options.blocks) ++blocks[policy];
  std::string text = options.blocks.empty()
                         ? concat("--activation-checkpointing ", options.recompute)
                         : std::string("blocks that save for backward:");
  for (const std::string_view policy : kBlockPolicies) {
    if (blocks[policy] == 0) continue;
    const std::string_view saved = policy == "full"        ? "their inputs"
                                   : policy == "attention" ? "and attention"
                                   : policy == "op"        ? "and products"
                                                           : "everything";
    text += concat(' ', blocks[policy], ' ', saved, ',');
  }
  if (text.ends_with(',')) text.pop_back();
  text += options.keep_gathered ? ", parameters kept gathered" : ", parameters resharded";
  return text + concat(" after forward, ", options.prefetch, " gathered early");
}

}  // namespace weft::cli
