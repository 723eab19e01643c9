// SPDX-License-Identifier: Apache-2.0
#include "cli/step_cost.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tests/cli/measured_step.h"
#include "tests/support/model_configs.h"

namespace weft::cli {

static void expect_told_beforehand(ParallelOptions options, const TransformerConfig& config) {
  SCOPED_TRACE(options.mesh + " " + options.strategy + " " + options.dtype + " " +
               options.recompute);
  options.batch = 8;
  options.seq = 16;
  const int ranks = complete(options, 0, 64, "--ranks");
  const MeasuredStep measured = measured_step(config, options, ranks);
  const StepCost cost = step_cost(fake_world(0, ranks, 8), config, options);
  for (int i = 0; i < kPurposes; ++i) {
    const auto purpose = static_cast<Purpose>(i);
    // Scratch memory of kernels is not predicted, nor which experts tokens choose.
    const bool depends_on_tokens = config.experts > 0 && purpose == Purpose::activations;
    if (purpose == Purpose::other || depends_on_tokens) continue;
    EXPECT_EQ(cost.memory[static_cast<size_t>(i)], measured.memory[static_cast<size_t>(i)])
        << name_of(purpose);
  }
  if (config.experts > 0) return;
  int64_t bytes = 0;
  for (const AxisCost& axis : cost.traffic) bytes += axis.bytes;
  EXPECT_EQ(bytes, measured.bytes);
}

static void expect_told_beforehand(const ParallelOptions& options, int64_t layers = 3) {
  expect_told_beforehand(options, small_llama(layers));
}

TEST(StepCost, IsWhatAStepTakes) {
  expect_told_beforehand({.mesh = "dp=4"});
  expect_told_beforehand({.mesh = "dp=1"});
  expect_told_beforehand({.mesh = "dp=3", .choice = {.keep_gathered = true}});
  expect_told_beforehand({.mesh = "dp=4", .strategy = "zero2", .accumulate = 2});
  expect_told_beforehand({.mesh = "dp=4", .strategy = "zero1", .accumulate = 4});
  expect_told_beforehand({.mesh = "dp=4", .strategy = "ddp"});
  expect_told_beforehand({.mesh = "a=2,b=2", .strategy = "hsdp", .accumulate = 2});
  expect_told_beforehand({.mesh = "dp=4", .dtype = "bf16"});
  expect_told_beforehand({.mesh = "dp=3", .gather_dtype = "int8", .gradient_dtype = "int8"});
  expect_told_beforehand({.mesh = "a=2,b=2",
                          .strategy = "hsdp",
                          .gather_dtype = "fp8",
                          .gradient_dtype = "bf16",
                          .accumulate = 2});
  expect_told_beforehand({.mesh = "dp=2", .float8 = true});
  expect_told_beforehand({.mesh = "dp=2", .recompute = "full"});
  expect_told_beforehand({.mesh = "dp=2", .recompute = "selective"});
}

TEST(StepCost, CountsTheStateOfTheOptimizer) {
  std::map<std::string, int64_t> bytes;
  for (const std::string& name : optimizer_names()) {
    for (const char* mesh : {"dp=1", "dp=3", "dp=2,tp=2"}) {
      SCOPED_TRACE(name + ' ' + mesh);
      ParallelOptions options{.mesh = mesh, .optimizer = name, .batch = 12, .seq = 16};
      const int ranks = complete(options, 0, 64, "--ranks");
      const StepCost cost = step_cost(fake_world(0, ranks, 8), small_llama(2), options);
      const auto optimizer = static_cast<size_t>(Purpose::optimizer);
      EXPECT_EQ(cost.memory[optimizer],
                measured_step(small_llama(2), options, ranks).memory[optimizer]);
      if (ranks == 1) bytes[name] = cost.memory[optimizer];
    }
  }
  EXPECT_EQ(bytes["adam"], bytes["adamw"]);
  EXPECT_EQ(2 * bytes["sgd"], bytes["adamw"]);
  EXPECT_EQ(2 * bytes["lion"], bytes["adamw"]);
  EXPECT_LT(bytes["adamw8bit"], bytes["adamw"]);
  EXPECT_LT(bytes["lion"], bytes["muon"]);
}

TEST(StepCost, IsWhatAStepTakesUnderTensorParallelism) {
  expect_told_beforehand({.mesh = "tp=2"});
  expect_told_beforehand({.mesh = "dp=2,tp=2"});
  expect_told_beforehand({.mesh = "dp=2,tp=2", .sequence_parallel = true});
  expect_told_beforehand({.mesh = "a=2,b=2,tp=2", .strategy = "hsdp"});
  expect_told_beforehand({.mesh = "tp=2", .async_tp = 3});
  expect_told_beforehand({.mesh = "dp=2,tp=2", .dtype = "bf16", .async_tp = 4});
  expect_told_beforehand({.mesh = "dp=2,tp=2", .recompute = "full", .async_tp = 2});
  expect_told_beforehand({.mesh = "dp=2,tp=2", .async_tp = 2}, 12);
}

/// The same step, whose activations move while products are computed.
TEST(StepCost, SplitProductsHideWhatTheyOverlap) {
  ParallelOptions options{.mesh = "dp=2,tp=4", .dtype = "bf16"};
  options.batch = 16;
  options.seq = 2048;
  const int ranks = complete(options, 0, 64, "--ranks");
  const Machine machine = machine_named("h100", "bf16", ranks);
  TransformerConfig config = small_llama(3);
  config.dim = 4096;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.ffn = 11008;
  const auto seconds_with = [&](int parts) {
    ParallelOptions one = options;
    one.async_tp = parts;
    return step_seconds(step_cost(fake_world(0, ranks, 8, false), config, one), machine);
  };
  const StepSeconds whole = seconds_with(1), two = seconds_with(2), four = seconds_with(4);
  EXPECT_EQ(whole.hidden_by_parts, 0);
  EXPECT_GT(two.hidden_by_parts, 0);
  EXPECT_NEAR(four.hidden_by_parts / two.hidden_by_parts, 1.5, 0.2);
  EXPECT_LT(four.total, two.total);
  EXPECT_LT(two.total, whole.total);
  // Contributions to the gradient of an input are added by the products.
  EXPECT_LT(four.compute, whole.compute);
  EXPECT_NEAR(four.compute, whole.compute, 0.1 * whole.compute);
  Machine waiting = machine;
  waiting.overlaps = false;
  EXPECT_EQ(step_seconds(step_cost(fake_world(0, ranks, 8, false), config, options), waiting)
                .hidden_by_parts,
            0);
}

TEST(StepCost, OfManyLayersIsThatOfFewContinued) {
  for (const int64_t layers : {12, 17}) {
    expect_told_beforehand({.mesh = "dp=3"}, layers);
    expect_told_beforehand({.mesh = "dp=2", .recompute = "selective"}, layers);
    expect_told_beforehand({.mesh = "dp=2", .recompute = "full", .choice = {.keep_gathered = true}},
                           layers);
    expect_told_beforehand({.mesh = "a=2,b=2,tp=2", .strategy = "hsdp", .accumulate = 4}, layers);
    expect_told_beforehand({.mesh = "dp=2", .strategy = "zero2", .dtype = "bf16", .accumulate = 8},
                           layers);
  }
}

static std::vector<bool> flags(int64_t layers, const std::function<bool(int64_t)>& flag) {
  std::vector<bool> all;
  for (int64_t i = 0; i < layers; ++i) all.push_back(flag(i));
  return all;
}

/// Windows as in Gemma 2 and 3, no rotation as in SmolLM3.
TEST(StepCost, OfLayersOfSeveralKindsIsThatOfTheirPatternContinued) {
  TransformerConfig gemma2 = small_llama(26), gemma3 = gemma2, smol = small_llama(18);
  gemma2.window = gemma3.window = 5;
  gemma2.windowed = flags(26, [](int64_t i) { return i % 2 == 0; });
  gemma3.windowed = flags(26, [](int64_t i) { return (i + 1) % 6 != 0; });
  smol.unrotated = flags(18, [](int64_t i) { return (i + 1) % 4 == 0; });
  for (const TransformerConfig& config : {gemma2, gemma3, smol}) {
    expect_told_beforehand({.mesh = "dp=3"}, config);
    expect_told_beforehand({.mesh = "dp=2", .recompute = "selective"}, config);
  }
  TransformerConfig deep = small_llama(130);
  deep.unrotated = flags(130, [](int64_t i) { return i % 3 == 0; });
  ParallelOptions options{.mesh = "dp=2"};
  complete(options, 0, 64, "--ranks");
  const std::string schedule = step_schedule(fake_world(0, 2, 8), deep, options);
  EXPECT_TRUE(schedule.starts_with("schedule of the first 128 layers; the model has 130\n"));
}

/// Dense layers before and behind sparse ones, and a few among them.
TEST(StepCost, OfLayersWithExpertsCountsTheDenseOnes) {
  TransformerConfig config = small_llama(24);
  config.experts = 4;
  config.expert_ffn = 20;
  for (const auto& is_dense : std::vector<std::function<bool(int64_t)>>{
           [](int64_t i) { return i < 12; }, [](int64_t i) { return i >= 12; },
           [](int64_t i) { return i < 3; }, [](int64_t i) { return i % 5 == 0; }}) {
    config.dense = flags(24, is_dense);
    expect_told_beforehand({.mesh = "dp=3"}, config);
    expect_told_beforehand({.mesh = "dp=2", .recompute = "full"}, config);
  }
}

TEST(StepCost, IsPredictedForARankWhoseRandomNumbersStay) {
  ParallelOptions options{.mesh = "dp=4"};
  const int ranks = complete(options, 0, 64, "--ranks");
  const Machine machine = machine_named("h100", "f32", ranks);
  const RandomState before = Context::current().random;
  const StepSeconds predicted = predicted_step(machine, small_llama(3), options, ranks, 2);
  EXPECT_TRUE(Context::current().random == before);
  const StepSeconds estimated = step_seconds(
      step_cost(fake_world(0, ranks, 2, !machine.overlaps), small_llama(3), options), machine);
  EXPECT_GT(predicted.communication, 0);
  EXPECT_EQ(predicted.communication, estimated.communication);
  EXPECT_EQ(predicted.total, estimated.total);
}

/// 70 billion parameters over a simulated cluster of 512 ranks.
TEST(StepCost, OfALargeModelIsWorkedOutWithoutItsMemory) {
  ParallelOptions options{.mesh = "dp=64,tp=8", .dtype = "bf16", .batch = 512, .seq = 8192};
  const StepCost cost = step_cost(fake_world(5, 512, 8, false), large_llama(), options);
  const double parameters = 70.55e9;
  EXPECT_NEAR(static_cast<double>(cost.sharding.parameters), 4 * parameters / 512, 1e7);
  // 6 operations a parameter and token, and the causal half of 12 layers x dim x sequence.
  const double tokens = 8.0 * 8192, embedding = 8192.0 * 128256;
  const double products = 6 * (parameters - embedding) / 8 * tokens;
  const double attention = 6.0 * 80 * 8192 / 8 * 8192 * tokens;
  EXPECT_NEAR(cost.operations() / (products + attention), 1, 0.1);
  for (const AxisCost& axis : cost.traffic) EXPECT_EQ(axis.crosses_hosts, axis.axes == "dp");
}

/// Hosts of three ranks: the tensor-parallel ranks 2 and 3 are of two.
TEST(StepCost, KnowsAxesThatAHostCuts) {
  ParallelOptions options{.mesh = "dp=3,tp=2", .batch = 12, .seq = 32};
  const StepCost cost = step_cost(fake_world(0, 6, 3), small_llama(2), options);
  EXPECT_FALSE(cost.traffic.empty());
  for (const AxisCost& axis : cost.traffic) EXPECT_TRUE(axis.crosses_hosts) << axis.axes;
}

}  // namespace weft::cli
