// SPDX-License-Identifier: Apache-2.0
// Plans of a user's model for a budget of memory: predicted peaks are those of training.
#include <gtest/gtest.h>

#include "tests/fsdp/little_llama.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/memory_budget.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"

namespace weft {
namespace {

constexpr int kMicroSteps = 2;
constexpr int64_t kRows = 6, kTokens = 32;

Tensor batch_on(const DeviceMesh& mesh, Device device) {
  return zeros({kRows, kTokens}, {i64, device, Sharding(mesh, {Shard(0)})});
}

TransformerConfig planned_llama() {
  TransformerConfig config = little_llama();
  config.dim = 48;
  config.layers = 4;
  config.max_sequence = kTokens;
  return config;
}

void take_micro_step(TransformerModel& model, const DeviceMesh& mesh, Device device) {
  const Tensor ids = batch_on(mesh, device), targets = batch_on(mesh, device);
  mul(model.loss(ids, targets), 1.0 / kMicroSteps).backward();
}

StepModel built(const DeviceMesh& mesh) {
  const auto model = std::make_shared<TransformerModel>(planned_llama());
  return {.model = model, .blocks = model->blocks(), .micro_step = [model, mesh] {
            take_micro_step(*model, mesh, meta);
          }};
}

MemoryPlan plan_for(const DeviceMesh& mesh, const MemoryBudget& budget) {
  return plan_memory([](const DeviceMesh& root) { return built(root); }, mesh, {}, budget,
                     {.micro_steps = kMicroSteps});
}

/// Trains as the plan says; the peak, and the loss of the last step on rank 0.
std::pair<int64_t, std::vector<float>> trained_by(const MemoryPlan& plan, const DeviceMesh& mesh) {
  const StepModel built_model = built(mesh);
  auto& model = dynamic_cast<TransformerModel&>(*built_model.model);
  plan.apply(built_model, mesh, {});
  manual_seed(3);
  model.materialize();
  AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2, .offload = plan.choice.state});
  for (int step = 0; step < 3; ++step) {
    if (step == 2) reset_peak_memory();
    const PurposeScope purpose(Purpose::activations);
    optimizer.zero_grad();
    for (int micro_step = 0; micro_step < kMicroSteps; ++micro_step) {
      NoSync no_sync(model, micro_step + 1 < kMicroSteps);
      take_micro_step(model, mesh, cpu);
    }
    optimizer.step(clip_scale(gradient_norm(model.parameters()), 1));
  }
  const int64_t peak = memory_statistics().total.peak;
  const NoGrad no_grad;
  return {peak,
          model.loss(batch_on(mesh, cpu), batch_on(mesh, cpu)).full_tensor().to_vector<float>()};
}

TEST(MemoryBudget, IsKeptWithTheSameBits) {
  const Scratch scratch;
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks,
              [&](Communicator world) {
                const DeviceMesh mesh(world, {{"dp", world.size()}});
                const MemoryPlan most = plan_for(mesh, {int64_t{1} << 40});
                const std::string error = error_of([&] { plan_for(mesh, {1, scratch.root()}); });
                const size_t at = error.find("at least ") + 9;
                const int64_t least = std::stoll(error.substr(at, error.find(',', at) - at));
                ASSERT_LT(least, most.peak);
                const auto expected = trained_by(most, mesh);
                double before = 0;
                for (const double share : {1.0, 0.7, 0.4, 0.2, 0.0}) {
                  const int64_t bytes =
                      least + static_cast<int64_t>(share * static_cast<double>(most.peak - least));
                  const MemoryPlan plan = plan_for(mesh, {bytes, scratch.root()});
                  SCOPED_TRACE(concat(ranks, " ranks, ", bytes, " bytes: ", plan.text()));
                  EXPECT_LE(plan.peak, bytes);
                  EXPECT_GE(plan.seconds, before);
                  before = plan.seconds;
                  const auto [peak, loss] = trained_by(plan, mesh);
                  if (world.rank() == 0) {
                    EXPECT_LE(peak, plan.peak);
                  }
                  EXPECT_EQ(loss, expected.second);
                }
              },
              {.deadline = std::chrono::seconds(60), .threads_per_rank = 1});
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.root()));
}

/// The predicted peak of the choice that takes least, without a disk: backward begins with the last
/// block, which may take less if it saves more.
int64_t least_peak(const DeviceMesh& mesh, bool fine) {
  int64_t least = INT64_MAX;
  for (const std::string_view last : kBlockPolicies) {
    const auto build = [&] {
      StepModel model = built(mesh);
      for (Module* block : model.blocks) set_block_policy(*block, "full");
      set_block_policy(*model.blocks.back(), last);
      return model;
    };
    const StepOptions step{.micro_steps = kMicroSteps, .fine_units = fine};
    least = std::min(least, step_cost(build, mesh, {.prefetch = 0}, step).peak_bytes());
  }
  return least;
}

TEST(MemoryBudget, FinerUnitsMeetWhatBlocksDoNot) {
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, [&](Communicator world) {
      const DeviceMesh mesh(world, {{"dp", world.size()}});
      const DeviceMesh fake(fake_world(0, ranks), {{"dp", ranks}});
      const int64_t blocks = least_peak(fake, false), parts = least_peak(fake, true);
      ASSERT_LT(parts, blocks);
      const auto expected = trained_by(plan_for(mesh, {int64_t{1} << 40}), mesh);
      for (const int64_t bytes : {parts, (parts + blocks) / 2, blocks - 1}) {
        const MemoryPlan plan = plan_for(mesh, {bytes});
        EXPECT_TRUE(plan.choice.fine_units);
        EXPECT_LE(plan.peak, bytes);
        EXPECT_NE(plan.text().find("attention and feed-forward apart"), std::string::npos);
        const auto [peak, loss] = trained_by(plan, mesh);
        EXPECT_EQ(loss, expected.second);
        if (world.rank() == 0) {
          EXPECT_LE(peak, plan.peak);
        }
      }
      EXPECT_NE(error_of([&] { plan_for(mesh, {parts - 1}); }).find(" apart; or use more ranks"),
                std::string::npos);
      EXPECT_FALSE(plan_for(mesh, {int64_t{1} << 40}).choice.fine_units);
    });
  }
}

/// Gradients are written in the dtype of reduced ones, unless that of the reduction is set.
TEST(MemoryBudget, PredictsGradientsInTheDtypeOfTheirSums) {
  for (const int ranks : {1, 3}) {
    const DeviceMesh mesh(fake_world(0, ranks), {{"dp", ranks}});
    const auto cost_of = [&](const MixedPrecision& precision) {
      return step_cost([&] { return built(mesh); }, mesh, {.precision = precision});
    };
    const MixedPrecision sums{.compute = DType::bf16, .accumulate = DType::bf16};
    MixedPrecision both = sums;
    both.reduce = DType::bf16;
    const StepCost found = cost_of(sums), expected = cost_of(both);
    EXPECT_EQ(found.memory, expected.memory) << ranks;
    EXPECT_EQ(step_seconds(found, {}).total, step_seconds(expected, {}).total) << ranks;
  }
}

TEST(MemoryBudget, CostsKnowWhichAxesCrossHosts) {
  for (const int ranks_per_host : {4, 8}) {
    const DeviceMesh mesh(fake_world(0, 8, ranks_per_host), {{"dp", 8}});
    FullyShardOptions whole, parts;
    parts.reshard_after_forward = 4;
    for (const FullyShardOptions& options : {whole, parts}) {
      const StepCost cost =
          step_cost([&] { return built(mesh); }, mesh, options, {.micro_steps = kMicroSteps});
      EXPECT_FALSE(cost.traffic.empty());
      for (const AxisCost& axis : cost.traffic) {
        EXPECT_EQ(axis.crosses_hosts, ranks_per_host < 8) << axis.axes;
      }
    }
  }
}

TEST(MemoryBudget, AThrowingModelLeavesTheRandomNumbers) {
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    manual_seed(5);
    const RandomState before = Context::current().random;
    int calls = 0;
    const auto plan = [&](int throws_at) {
      return plan_memory(
          [&](const DeviceMesh& root) {
            StepModel model = built(root);
            model.micro_step = [&, run = model.micro_step] {
              uniform({3}, 0, 1);
              run();
              if (++calls == throws_at) throw std::runtime_error("no more");
            };
            return model;
          },
          mesh, {}, {int64_t{1} << 40}, {.micro_steps = kMicroSteps});
    };
    for (const int throws_at : {1, 3}) {
      calls = 0;
      EXPECT_THROW(plan(throws_at), std::runtime_error);
      EXPECT_EQ(Context::current().random, before);
    }
    // Nothing else is left of them: the next plan and its training are those of a first one.
    EXPECT_EQ(plan(0).text(), plan_for(mesh, {int64_t{1} << 40}).text());
    EXPECT_EQ(Context::current().random, before);
  });
}

TEST(MemoryBudget, SaysWhatWouldFit) {
  run_ranks(2, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const std::string error = error_of([&] { plan_for(mesh, {1000}); });
    EXPECT_EQ(error.find("plan_memory: budget is 1000 bytes, expected at least "), 0U) << error;
    EXPECT_NE(error.find("or use more ranks, more micro-steps or a directory"), std::string::npos);
    const MemoryPlan plan = plan_for(mesh, {int64_t{1} << 40});
    StepModel model = built(mesh);
    model.blocks.pop_back();
    EXPECT_EQ(
        error_of([&] { plan.apply(model, mesh, {}); }),
        "memory plan: number of blocks is 3, expected 4, those of the model that was planned");
    EXPECT_EQ(error_of([&] { set_block_policy(*model.model, "some"); }),
              "set_block_policy: policy is \"some\", expected full, attention, op or none, and "
              "+offload behind it");
  });
}

}  // namespace
}  // namespace weft
