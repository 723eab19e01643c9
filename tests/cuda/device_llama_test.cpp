// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/trained_llama.h"

namespace weft {

class DeviceLlama : public OnGpu {};

static void expect_equal_losses(const Recipe& recipe) {
  expect_equal(losses_of(recipe, gpu), losses_of(recipe, cpu));
}

TEST_F(DeviceLlama, OneRank) { expect_equal_losses({.axes = {{"dp", 1}}}); }
TEST_F(DeviceLlama, FullyShardedOnThree) { expect_equal_losses({.axes = {{"dp", 3}}}); }
TEST_F(DeviceLlama, FullyShardedOverTensorParallel) {
  expect_equal_losses({.axes = {{"dp", 2}, {"tp", 2}}, .tensor_parallel = true});
}
TEST_F(DeviceLlama, FullyShardedOverSplitProducts) {
  for (const int parts : {2, 3}) {
    expect_equal_losses({.axes = {{"dp", 2}, {"tp", 2}}, .tensor_parallel = true, .parts = parts});
  }
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
