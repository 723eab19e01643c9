// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/fsdp/little_llama.h"
#include "tests/support/llama_reference.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/fsdp.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"
#include "weft/transformer.h"

namespace weft {
namespace {

class FullyShard : public testing::TestWithParam<int> {};

TEST_P(FullyShard, EqualsTransformers) {
  for (const char* name : {"heads", "grouped", "grouped_tied"}) {
    run_ranks(GetParam(), [&](Communicator world) {
      DeviceMesh mesh(world, {{"dp", world.size()}});
      LlamaSetup setup;
      setup.shard = [&](TransformerModel& model) { shard(model, mesh); };
      setup.batch = [&](const Tensor& whole) { return distribute(whole, mesh, {Shard(0)}); };
      expect_as_transformers(name, setup);
    });
  }
}

/// The prediction holds before the first step and after it; no parameter or gradient is copied.
TEST_P(FullyShard, MovesAndHoldsWhatItPredicts) {
  for (bool reshard : {true, false}) {
    run_ranks(GetParam(), [&](Communicator world) {
      DeviceMesh mesh(world, {{"dp", world.size()}});
      TransformerModel model(little_llama());
      shard(model, mesh, {.reshard_after_forward = reshard});
      FullyShardBytes predicted = predicted_bytes(model);
      model.materialize();
      AdamW optimizer(model.named_parameters());
      for (int step = 0; step < 4; ++step) {
        int64_t before = mesh.traffic().bytes;
        int64_t copies = engine_statistics().gradient_copies;
        int64_t implicit = engine_statistics().implicit_bytes;
        Tensor loss = model.loss(batch_of(mesh, 4, step), batch_of(mesh, 4, step + 1));
        loss.backward();
        int64_t others = engine_statistics().implicit_bytes - implicit;
        EXPECT_EQ(mesh.traffic().bytes - before - others, predicted.received) << "step " << step;
        EXPECT_EQ(engine_statistics().gradient_copies, copies) << "step " << step;
        optimizer.step();
        optimizer.zero_grad();
      }
      FullyShardBytes measured = measured_bytes(model);
      EXPECT_EQ(measured.parameters, predicted.parameters);
      EXPECT_EQ(measured.gradients, predicted.gradients);
      EXPECT_EQ(measured.buffers, predicted.buffers);
      EXPECT_EQ(measured.received, predicted.received);
      FullyShardBytes after = predicted_bytes(model);
      EXPECT_EQ(after.buffers, measured.buffers);
      EXPECT_EQ(after.received, measured.received);
    });
  }
}

/// N ranks gather the same parameters as one rank, bit for bit, and train alike.
TEST_P(FullyShard, LearnsAsOneRank) {
  const auto learn = [](int ranks) {
    std::vector<double> losses;
    on_llama({{"dp", ranks}}, {}, [&](TransformerModel& model, const DeviceMesh& mesh) {
      AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2});
      for (int step = 0; step < 50; ++step) {
        Tensor loss = model.loss(batch_of(mesh, 5, step % 3), batch_of(mesh, 5, step % 3 + 1));
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        double value = loss.full_tensor().item();
        if (mesh.rank() == 0) losses.push_back(value);
      }
    });
    return losses;
  };
  const std::vector<double> alone = learn(1), together = learn(GetParam());
  for (size_t i = 0; i < alone.size(); ++i)
    EXPECT_NEAR(together[i], alone[i], 1e-3) << "step " << i;
  EXPECT_LT(alone.back(), alone.front());
}

TEST_P(FullyShard, StartsWithEqualBits) {
  std::vector<std::vector<float>> alone;
  auto collect = [](std::vector<std::vector<float>>& values) {
    return [&values](Communicator world) {
      DeviceMesh mesh(world, {{"dp", world.size()}});
      TransformerModel model(little_llama());
      shard(model, mesh);
      model.materialize();
      for (const ParameterPtr& parameter : model.parameters()) {
        std::vector<float> whole = parameter->value().full_tensor().to_vector<float>();
        if (world.rank() == 0) values.push_back(std::move(whole));
      }
    };
  };
  run_ranks(1, collect(alone), {.seed = 7});
  std::vector<std::vector<float>> together;
  run_ranks(GetParam(), collect(together), {.seed = 7});
  EXPECT_EQ(alone, together);
}

TEST_P(FullyShard, AccumulatesGradientsOfTwoBackwards) {
  on_llama({{"dp", GetParam()}}, {}, [&](TransformerModel& model, const DeviceMesh& mesh) {
    auto run = [&] { model.loss(batch_of(mesh, 4, 1), batch_of(mesh, 4, 2)).backward(); };
    run();
    const auto once = gradients_of(model);
    run();
    const auto twice = gradients_of(model);
    for (size_t i = 0; i < once.size(); ++i) {
      for (size_t j = 0; j < once[i].size(); ++j) {
        ASSERT_NEAR(twice[i][j], 2 * once[i][j], 1e-5 * (1 + std::abs(once[i][j])));
      }
    }
  });
}

TEST_P(FullyShard, LeavesFrozenAndIgnoredParametersAlone) {
  run_ranks(GetParam(), [&](Communicator world) {
    DeviceMesh mesh(world, {{"dp", world.size()}});
    TransformerModel model(little_llama());
    model.module("model.layers.1").parameters()[0]->set_trainable(false);
    model.module("model.layers.2.input_layernorm").parameters()[0]->set_trainable(false);
    for (const ParameterPtr& p : model.module("model.embed_tokens").parameters()) {
      p->set_trainable(false);
    }
    for (Module* block : model.blocks()) fully_shard(*block, mesh);
    fully_shard(model, mesh, {.ignored = {"model.norm.weight"}});
    model.materialize();
    model.loss(batch_of(mesh, 4, 1), batch_of(mesh, 4, 2)).backward();
    for (const NamedParameter& named : model.named_parameters()) {
      EXPECT_EQ(static_cast<bool>(named.parameter->grad()), named.parameter->is_trainable())
          << named.name();
    }
    const Tensor& ignored = model.module("model.norm").parameters()[0]->value();
    EXPECT_TRUE(ignored.sharding().is_replicated());
    EXPECT_TRUE(ignored.grad().sharding().is_replicated());
  });
}

TEST_P(FullyShard, RecomputesWithEqualBits) {
  std::vector<std::vector<float>> results[2];
  for (bool recompute : {false, true}) {
    run_ranks(GetParam(), [&](Communicator world) {
      DeviceMesh mesh(world, {{"dp", world.size()}});
      TransformerModel model(little_llama());
      for (Module* block : model.blocks()) block->set_recompute(recompute);
      shard(model, mesh);
      model.materialize();
      model.loss(batch_of(mesh, 4, 1), batch_of(mesh, 4, 2)).backward();
      const auto gradients = gradients_of(model);
      if (world.rank() == 0) results[recompute] = gradients;
    });
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(FullyShard, GathersAroundAllHooks) {
  run_ranks(GetParam(), [&](Communicator world) {
    DeviceMesh mesh(world, {{"dp", world.size()}});
    Sequential model;
    const auto layer = std::make_shared<Linear>(5, 5, false, 0.3);
    model.append(layer);
    model.append(std::make_shared<Linear>(5, 3));
    const ParameterPtr weight = layer->parameters()[0];
    std::vector<double> seen;
    const auto look = [&](const Tensors& passing) {
      NoGrad no_grad;
      seen.push_back(sum(square(weight->tensor())).full_tensor().item());
      return passing;
    };
    const auto look_after = [&](const Tensors&, const Tensors& outputs) { return look(outputs); };
    layer->add_hooks({.before = look, .after = look_after});
    for (const auto& [name, child] : model.children()) fully_shard(*child, mesh);
    fully_shard(model, mesh);
    layer->add_hooks({.before = look, .after = look_after});
    model.materialize();
    const double expected = sum(square(weight->value())).full_tensor().item();
    sum(model(distribute(ones({4, 5}), mesh, {Shard(0)}))).backward();
    ASSERT_EQ(seen.size(), 4);
    for (const double value : seen) EXPECT_NEAR(value, expected, 1e-5);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FullyShard, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace weft
