// SPDX-License-Identifier: Apache-2.0
#include "cli/step_cost.h"

#include <gtest/gtest.h>

#include "tests/cli/measured_step.h"
#include "tests/support/scratch.h"
#include "weft/error.h"

namespace weft::cli {

static TransformerConfig planned_model() { return small_llama(4); }

static ParallelOptions with_batch(ParallelOptions options) {
  options.batch = 12;
  options.seq = 32;
  return options;
}

static void expect_within_prediction(const ParallelOptions& options, int ranks) {
  const MeasuredStep measured = measured_step(planned_model(), options, ranks);
  const StepCost cost = step_cost(fake_world(0, ranks, 8), planned_model(), options);
  for (size_t i = 0; i < kPurposes; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    // Scratch memory of products is bounded, and what two blocks with fine units gather.
    if (purpose == Purpose::other || (purpose == Purpose::gathered && options.choice.fine_units)) {
      EXPECT_LE(measured.memory[i], cost.memory[i]);
    } else {
      EXPECT_EQ(cost.memory[i], measured.memory[i]) << name_of(purpose);
    }
  }
  EXPECT_LE(measured.total, cost.peak_bytes());
}

/// Strategies, recomputations, prefetches, accumulations, tensor parallelism and tiers.
static std::vector<ParallelOptions> configurations(const std::string& directory) {
  const Tier disk = Tier::disk(directory);
  const StepChoice state{.state = disk}, all{.offload = {disk, disk}, .state = disk};
  std::vector<ParallelOptions> list = {
      {.mesh = "dp=1"},
      {.mesh = "dp=1", .recompute = "full"},
      {.mesh = "dp=1", .recompute = "op"},
      {.mesh = "dp=1", .recompute = "op", .choice = state},
      {.mesh = "dp=1", .choice = all},
      {.mesh = "dp=1", .dtype = "bf16", .choice = all},
      {.mesh = "dp=2"},
      {.mesh = "dp=2", .recompute = "selective"},
      {.mesh = "dp=2", .recompute = "op", .accumulate = 2},
      {.mesh = "dp=2", .dtype = "bf16", .recompute = "op"},
      {.mesh = "dp=2", .recompute = "full", .choice = all},
      {.mesh = "dp=2", .choice = {.keep_gathered = true, .prefetch = 0}},
      {.mesh = "dp=2", .choice = {.prefetch = 2}},
      {.mesh = "dp=2", .strategy = "zero1", .accumulate = 3},
      {.mesh = "dp=2", .strategy = "zero2", .choice = {.prefetch = 0}, .accumulate = 2},
      {.mesh = "dp=2", .strategy = "ddp", .recompute = "op"},
      {.mesh = "dp=3", .choice = {.prefetch = 0}},
      {.mesh = "dp=3", .recompute = "op", .choice = {.fine_units = true}},
      {.mesh = "a=2,b=2",
       .recompute = "full",
       .choice = {.prefetch = 0, .fine_units = true},
       .accumulate = 2},
      {.mesh = "dp=3", .choice = {.keep_gathered = true, .offload = {disk, disk}, .state = disk}},
      {.mesh = "dp=3", .recompute = "selective", .choice = state},
      {.mesh = "dp=3", .strategy = "zero2", .dtype = "bf16"},
      {.mesh = "dp=4", .recompute = "full"},
      {.mesh = "dp=4", .strategy = "zero1", .choice = all, .accumulate = 3},
      {.mesh = "dp=4", .strategy = "ddp", .accumulate = 3},
      {.mesh = "a=2,b=2", .strategy = "hsdp", .recompute = "op"},
      {.mesh = "a=2,b=2", .strategy = "hsdp", .choice = state, .accumulate = 2},
      {.mesh = "tp=2", .recompute = "op"},
      {.mesh = "tp=2", .recompute = "full", .choice = all},
      {.mesh = "dp=2,tp=2", .recompute = "op", .sequence_parallel = true},
      {.mesh = "dp=2,tp=2", .recompute = "selective", .choice = {.prefetch = 2}},
      {.mesh = "dp=2,tp=2", .choice = all, .accumulate = 2},
  };
  for (const ParallelOptions& one :
       std::vector<ParallelOptions>{{.mesh = "dp=1", .recompute = "full"},
                                    {.mesh = "dp=2", .recompute = "op", .accumulate = 2},
                                    {.mesh = "dp=3", .dtype = "bf16", .recompute = "selective"},
                                    {.mesh = "dp=2,tp=2", .recompute = "full"},
                                    {.mesh = "tp=2", .recompute = "op"}}) {
    list.push_back(one);
    list.back().choice.offload.activations = disk;
  }
  for (std::vector<std::string> blocks : {std::vector<std::string>{"full", "op", "op", "none"},
                                          {"attention", "attention", "none", "none"},
                                          {"full", "full", "full", "attention"},
                                          {"op+offload", "full+offload", "op+offload", "none"}}) {
    list.push_back({.mesh = "dp=2",
                    .choice = {.blocks = std::move(blocks), .offload = {.activations = disk}}});
  }
  return list;
}

TEST(MemoryPlan, PredictsPeaksToTheByte) {
  const Scratch scratch;
  int number = 0;
  for (const ParallelOptions& one : configurations(scratch.root())) {
    ParallelOptions options = with_batch(one);
    SCOPED_TRACE(concat(number++, ": ", options.mesh, ' ', options.strategy, ' ', options.recompute,
                        ", state on ", options.choice.state));
    const int ranks = complete(options, 0, 64, "--ranks");
    expect_within_prediction(options, ranks);
  }
  EXPECT_GE(number, 30);
}

static MemoryPlan plan_with(const std::string& recompute, const std::string& memory, int ranks) {
  ParallelOptions options =
      with_batch({.mesh = concat("dp=", ranks), .recompute = recompute, .memory = memory});
  complete(options, 0, 64, "--ranks");
  return planned(planned_model(), options, ranks, 8, Machine());
}

static ParallelOptions chosen_by(const MemoryPlan& plan, int ranks) {
  ParallelOptions options = with_batch({.mesh = concat("dp=", ranks), .choice = plan.choice});
  complete(options, 0, 64, "--ranks");
  return options;
}

static StepCost cost_with(const std::string& recompute, int ranks) {
  ParallelOptions options = with_batch({.mesh = concat("dp=", ranks), .recompute = recompute});
  complete(options, 0, 64, "--ranks");
  return step_cost(fake_world(0, ranks, 8), planned_model(), options);
}

TEST(MemoryPlan, IsTheFastestThatFitsAndIsKept) {
  for (const int ranks : {1, 2, 3, 4}) {
    const int64_t least = cost_with("full", ranks).peak_bytes();
    const int64_t most = cost_with("none", ranks).peak_bytes();
    ASSERT_LT(least, most);
    double before = 1e9;
    for (const double share : {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}) {
      const int64_t budget =
          least + static_cast<int64_t>(share * static_cast<double>(most - least));
      const MemoryPlan plan = plan_with(concat("budget=", budget), "", ranks);
      EXPECT_LE(plan.peak, budget);
      const Machine machine;
      const ParallelOptions chosen = chosen_by(plan, ranks);
      const double seconds =
          step_seconds(step_cost(fake_world(0, ranks, 8), planned_model(), chosen), machine).total;
      EXPECT_LE(seconds, before);
      before = seconds;
      for (const char* other : {"none", "selective", "full", "op"}) {
        const StepCost cost = cost_with(other, ranks);
        if (cost.peak_bytes() > budget) continue;
        EXPECT_LE(seconds, 1.03 * step_seconds(cost, machine).total) << other << ' ' << share;
      }
      expect_within_prediction(chosen, ranks);
    }
  }
}

TEST(MemoryPlan, ChoosesTheScheduleToo) {
  const int64_t most = cost_with("none", 2).peak_bytes();
  const MemoryPlan all = plan_with("none", concat(2 * most), 2);
  EXPECT_TRUE(all.choice.keep_gathered);
  EXPECT_EQ(all.choice.blocks, std::vector<std::string>(4, "none"));
  const int64_t least = cost_with("full", 2).peak_bytes();
  const MemoryPlan small = plan_with("none", concat(least), 2);
  EXPECT_FALSE(small.choice.keep_gathered);
  EXPECT_LE(small.peak, least);
  expect_within_prediction(chosen_by(small, 2), 2);
}

TEST(MemoryPlan, SaysWhatWouldFit) {
  const std::string error = error_of([] { plan_with("none", "1000", 2); });
  EXPECT_TRUE(has(error, "--memory: budget is 1000 bytes, expected at least "));
  EXPECT_NE(error.find(" their inputs"), std::string::npos) << error;
  const std::string least = error.substr(error.find("at least ") + 9);
  const MemoryPlan fits = plan_with("none", least.substr(0, least.find(',')), 2);
  EXPECT_EQ(fits.peak, fits.allowed);
  EXPECT_NE(error_of([] { bytes_from("--memory", "2 bananas"); }).find("expected bytes such as"),
            std::string::npos);
  EXPECT_EQ(bytes_from("--memory", "1.5KiB"), 1536);
}

}  // namespace weft::cli
