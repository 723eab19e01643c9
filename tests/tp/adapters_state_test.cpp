// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/adapters.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/saved_model.h"
#include "weft/fsdp.h"
#include "weft/ops/factories.h"
#include "weft/peft.h"
#include "weft/tensor_parallel.h"

namespace weft {
namespace {

const std::string kReference = WEFT_SOURCE_DIR "/tests/reference/";

/// Initial values are rounded alike on any mesh.
TEST(AdaptersState, QuantizedHasTheSameInitialValuesOnAnyMesh) {
  const auto values = [](const std::vector<MeshAxis>& axes) {
    std::vector<std::vector<double>> found;
    on_mesh(axes, [&](const DeviceMesh& mesh) {
      TransformerModel model(transformer_config(kReference + "grouped"));
      add_adapters(model);
      quantize_base(model, 4);
      parallelize(model, mesh["tp"], transformer_styles(model.config()));
      fully_shard(model, mesh["dp"]);
      model.materialize();
      for (const ParameterPtr& parameter : model.parameters()) {
        const auto whole = whole_values(parameter->value());
        if (mesh.rank() == 0) found.push_back(whole);
      }
    });
    return found;
  };
  const auto alone = values({{"dp", 1}, {"tp", 1}});
  EXPECT_EQ(values({{"dp", 2}, {"tp", 2}}), alone);
  EXPECT_EQ(values({{"dp", 3}, {"tp", 1}}), alone);
}

/// A checkpoint of adapters alone, and its options.
TEST(AdaptersState, IsSavedAloneAndResumed) {
  Scratch scratch;
  std::vector<std::vector<double>> saved;
  std::string path;
  const auto make = [](const DeviceMesh& mesh, double alpha) {
    auto model = std::make_unique<TransformerModel>(transformer_config(kReference + "grouped"));
    add_adapters(*model, {.rank = 3, .alpha = alpha});
    fully_shard(*model, mesh);
    model->materialize();
    return model;
  };
  on_mesh({{"dp", 3}}, [&](const DeviceMesh& mesh) {
    const auto model = make(mesh, 6);
    for (const auto& [name, tensor] : adapter_state_dict(*model).tensors) {
      const NoGrad no_grad;
      normal_(tensor, 0, 1);
      const auto values = whole_values(tensor);
      if (mesh.rank() == 0) saved.push_back(values);
    }
    TrainingState state;
    state.add_adapters("model", *model);
    EXPECT_EQ(state.state_dict().tensors.size(), 8u);
    const std::string written =
        CheckpointSaver(mesh.communicator(), scratch.path("run")).save(1, state);
    if (mesh.rank() == 0) path = written;
  });
  const CheckpointContents contents = checkpoint_contents(path);
  EXPECT_EQ(contents.tensors.size(), 8u);
  const auto options = saved_adapters(contents, "model/");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->rank, 3);
  EXPECT_EQ(options->alpha, 6);
  EXPECT_EQ(options->targets.size(), 4u);
  EXPECT_FALSE(saved_adapters(contents, "other/"));
  on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) {
    const auto model = make(mesh, 6), other = make(mesh, 7);
    TrainingState state, refused;
    state.add_adapters("model", *model);
    load(path, state);
    size_t next = 0;
    for (const auto& [name, tensor] : adapter_state_dict(*model).tensors) {
      expect_values(whole_values(tensor), saved[next++]);
    }
    refused.add_adapters("model", *other);
    EXPECT_EQ(error_of([&] { load(path, refused); }),
              "training state: adapters.alpha is 6, expected 7, that of the model");
  });
}

}  // namespace
}  // namespace weft
