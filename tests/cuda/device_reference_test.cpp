// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/device.h"
#include "tests/support/llama_reference.h"
#include "weft/communicator.h"
#include "weft/fsdp.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

/// Logits, gradients and losses of Llamas on a GPU, against those computed by transformers.
class DeviceReference : public OnGpu {};

TEST_F(DeviceReference, OneRankComputesAsTransformers) {
  for (const char* name : {"heads", "grouped", "grouped_tied"}) {
    expect_as_transformers(name, {.device = gpu});
  }
}

TEST_F(DeviceReference, ThreeShardedRanksComputeAsTransformers) {
  run_ranks(3, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    LlamaSetup setup{.device = gpu};
    setup.shard = [&](TransformerModel& model) {
      for (Module* block : model.blocks()) fully_shard(*block, mesh);
      fully_shard(model, mesh);
    };
    setup.batch = [&](const Tensor& whole) { return distribute(whole, mesh, {Shard(0)}); };
    expect_as_transformers("grouped", setup);
  });
}

}  // namespace weft
