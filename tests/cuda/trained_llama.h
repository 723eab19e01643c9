// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "tests/cuda/device.h"
#include "tests/fsdp/little_llama.h"
#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"
#include "weft/tensor_parallel.h"

namespace weft {

/// The recipe for training a small Llama.
struct Recipe {
  std::vector<MeshAxis> axes;
  FullyShardOptions options = {};
  bool tensor_parallel = false;
  /// Parts of the products of tensor parallelism, along the sequence if more than 1.
  int parts = 1;
  /// True when the optimizer's state is offloaded.
  bool offload_state = false;
  int micro_steps = 1;
  /// Function that runs the ranks.
  std::function<void(int ranks, const std::function<void(Communicator)>& body)> run =
      [](int ranks, const std::function<void(Communicator)>& body) { run_ranks(ranks, body); };
  /// Called on each rank before each forward, backward and update.
  std::function<void()> disturb = [] {};
  /// Called on each rank after the last step.
  std::function<void(TransformerModel&, AdamW&)> look = [](TransformerModel&, AdamW&) {};
};

inline int ranks_of(const Recipe& recipe) { return ranks_of(recipe.axes); }

/// A rank's model before the first step.
struct PreparedLlama {
  PreparedLlama(const Recipe& recipe, const Communicator& world, Device device)
      : mesh(world, recipe.axes),
        rows(recipe.tensor_parallel ? mesh["dp"] : mesh),
        model(little_llama()) {
    if (recipe.tensor_parallel) {
      const TransformerStyleOptions options{.sequence_parallel = recipe.parts > 1,
                                            .parts = recipe.parts};
      parallelize(model, mesh["tp"], transformer_styles(little_llama(), options));
    }
    shard(model, rows, recipe.options);
    model.materialize(device);
  }

  const DeviceMesh mesh, rows;
  TransformerModel model;
};

/// Returns rank 0's losses of steps with AdamW and clipping.
inline std::vector<double> losses_of(const Recipe& recipe, Device device) {
  std::vector<double> losses;
  recipe.run(ranks_of(recipe), [&](Communicator world) {
    PreparedLlama prepared(recipe, world, device);
    const DeviceMesh& rows = prepared.rows;
    TransformerModel& model = prepared.model;
    for (const auto& parameter : model.parameters()) {
      EXPECT_EQ(parameter->tensor().device(), device);
    }
    AdamW optimizer(model.named_parameters(),
                    {.learning_rate = 1e-2, .offload = recipe.offload_state});
    for (int step = 0; step < 4; ++step) {
      Tensor sum;
      for (int micro = 0; micro < recipe.micro_steps; ++micro) {
        const NoSync hold(model, micro + 1 < recipe.micro_steps);
        const int64_t salt = step * recipe.micro_steps + micro;
        recipe.disturb();
        const Tensor loss = model.loss(batch_of(rows, 12, salt).to(device),
                                       batch_of(rows, 12, salt + 1).to(device));
        recipe.disturb();
        mul(loss, 1.0 / recipe.micro_steps).backward();
        sum = sum ? add(sum, loss.detach()) : loss.detach();
      }
      recipe.disturb();
      clip_grad_norm(model.parameters(), 0.5);
      optimizer.step();
      optimizer.zero_grad();
      const double value = sum.full_tensor().item();
      if (world.rank() == 0) losses.push_back(value);
    }
    recipe.look(model, optimizer);
  });
  return losses;
}

inline void expect_equal(const std::vector<double>& there, const std::vector<double>& here) {
  ASSERT_EQ(there.size(), 4u);
  ASSERT_EQ(here.size(), 4u);
  for (size_t i = 0; i < there.size(); ++i) EXPECT_NEAR(there[i], here[i], 1e-4) << "step " << i;
  EXPECT_LT(there[3], there[0]);
}

}  // namespace weft
