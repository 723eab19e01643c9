// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/device.h"
#include "tests/fsdp/little_llama.h"
#include "weft/autograd.h"
#include "weft/mesh.h"
#include "weft/optimizers.h"
#include "weft/state_dict.h"
#include "weft/tensor_parallel.h"

namespace weft {

class DeviceLlama : public OnGpu {};

/// How a little Llama is trained.
struct Recipe {
  std::vector<MeshAxis> axes;
  FullyShardOptions options = {};
  bool tensor_parallel = false;
};

/// Losses of steps with AdamW and clipping, on rank 0.
static std::vector<double> losses_of(const Recipe& recipe, Device device) {
  int ranks = 1;
  for (const MeshAxis& axis : recipe.axes) ranks *= axis.size;
  std::vector<double> losses;
  run_ranks(ranks, [&](Communicator world) {
    const DeviceMesh mesh(world, recipe.axes);
    const DeviceMesh rows = recipe.tensor_parallel ? mesh["dp"] : mesh;
    const LlamaConfig config = little_llama();
    Llama model(config);
    if (recipe.tensor_parallel) parallelize(model, mesh["tp"], llama_styles(config));
    shard(model, rows, recipe.options);
    model.materialize(device);
    for (const auto& parameter : model.parameters()) {
      ASSERT_EQ(parameter->value().device(), device);
    }
    AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2});
    for (int step = 0; step < 4; ++step) {
      const Tensor ids = batch_of(rows, 12, step).to(device);
      const Tensor loss = model.loss(ids, batch_of(rows, 12, step + 1).to(device));
      loss.backward();
      clip_grad_norm(model.parameters(), 0.5);
      optimizer.step();
      optimizer.zero_grad();
      const double value = loss.full_tensor().item();
      if (world.rank() == 0) losses.push_back(value);
    }
  });
  return losses;
}

static void expect_equal_losses(const Recipe& recipe) {
  const std::vector<double> there = losses_of(recipe, gpu), here = losses_of(recipe, cpu);
  ASSERT_EQ(there.size(), 4u);
  for (size_t i = 0; i < there.size(); ++i) EXPECT_NEAR(there[i], here[i], 1e-4) << "step " << i;
  EXPECT_LT(there[3], there[0]);
}

TEST_F(DeviceLlama, OneRank) { expect_equal_losses({.axes = {{"dp", 1}}}); }
TEST_F(DeviceLlama, FullyShardedOnThree) { expect_equal_losses({.axes = {{"dp", 3}}}); }
TEST_F(DeviceLlama, FullyShardedOverTensorParallel) {
  expect_equal_losses({.axes = {{"dp", 2}, {"tp", 2}}, .tensor_parallel = true});
}
TEST_F(DeviceLlama, Hybrid) {
  FullyShardOptions options;
  options.strategy = Strategy::named("hsdp");
  expect_equal_losses({.axes = {{"replicate", 2}, {"shard", 2}}, .options = options});
}
TEST_F(DeviceLlama, ReplicatedInBuckets) {
  FullyShardOptions options;
  options.strategy = Strategy::named("ddp");
  expect_equal_losses({.axes = {{"dp", 2}}, .options = options});
}

}  // namespace weft
