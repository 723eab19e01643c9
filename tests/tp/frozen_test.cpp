// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <utility>

#include "tests/support/ranks.h"
#include "tests/tp/little_llama.h"
#include "weft/fsdp.h"
#include "weft/layers.h"
#include "weft/optimizers.h"

namespace weft {
namespace {

int64_t bytes_for(Purpose purpose) {
  return memory_statistics().by_purpose[static_cast<size_t>(purpose)].current;
}

/// Adds a low-rank adapter x -> up(down x) to the output of the frozen layer.
void adapt(Module& layer) {
  const Shape& weight = layer.own_parameters()[0].second->shape();
  auto adapter = std::make_shared<Sequential>();
  adapter->append(std::make_shared<Linear>(weight[1], 3, false, 0.3));
  adapter->append(std::make_shared<Linear>(3, weight[0], false, 0.3));
  layer.adopt("adapter", adapter);
  layer.add_hooks({.before = {}, .after = [adapter](const Tensors& inputs, const Tensors& outputs) {
                     return Tensors{outputs[0] + (*adapter)(inputs[0])};
                   }});
}

/// Adds adapters to the query projections of a frozen Llama, sharded as these are.
void adapt_queries(TransformerModel& model, const DeviceMesh& mesh) {
  for (const ParameterPtr& parameter : model.parameters()) parameter->set_trainable(false);
  std::vector<ModuleStyle> styles = transformer_styles(model.config());
  for (Module* block : model.blocks()) adapt(block->module("self_attn.q_proj"));
  styles.push_back({"model.layers.*.self_attn.q_proj.adapter.1", Colwise()});
  parallelize(model, mesh["tp"], styles);
  for (Module* block : model.blocks()) fully_shard(*block, mesh["dp"]);
  fully_shard(model, mesh["dp"]);
  model.materialize();
}

struct Learned {
  std::vector<double> losses;
  std::vector<std::vector<double>> adapters;
};

Learned learn(const DeviceMesh& mesh) {
  TransformerModel model(little_llama(4, 2));
  adapt_queries(model, mesh);
  AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2});
  const TensorOptions rows{.dtype = i64, .sharding = Sharding(mesh, {{"dp", Shard(0)}})};
  const int64_t gradients = bytes_for(Purpose::gradients), state = bytes_for(Purpose::optimizer);
  Learned learned;
  for (int step = 0; step < 3; ++step) {
    const Tensor loss = model.loss(some_ids({4, 7}, step, rows), some_ids({4, 7}, step + 1, rows));
    loss.backward();
    optimizer.step();
    if (step == 0) {
      int64_t expected = 0;
      for (const NamedParameter& named : optimizer.parameters()) {
        expected += 4 * named.parameter->value().box().shape.product();
      }
      EXPECT_EQ(bytes_for(Purpose::gradients) - gradients, expected);
      EXPECT_EQ(measured_bytes(model).gradients, expected);
      EXPECT_EQ(bytes_for(Purpose::optimizer) - state, 2 * expected);
    }
    optimizer.zero_grad();
    learned.losses.push_back(loss.full_tensor().item());
  }
  for (const NamedParameter& named : optimizer.parameters()) {
    learned.adapters.push_back(whole_values(named.parameter->value()));
  }
  return learned;
}

/// Gradients and optimizer state exist for trainable parameters only, to the byte; the adapters
/// equal those of one rank.
TEST(Frozen, TakesNoMemoryForGradients) {
  Learned alone;
  on_mesh({{"dp", 1}, {"tp", 1}}, [&](const DeviceMesh& mesh) { alone = learn(mesh); });
  ASSERT_EQ(alone.adapters.size(), 4u);
  EXPECT_LT(alone.losses.back(), alone.losses.front());
  for (const auto& [dp, tp] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
    on_mesh({{"dp", dp}, {"tp", tp}}, [&](const DeviceMesh& mesh) {
      const Learned together = learn(mesh);
      expect_values(together.losses, alone.losses, 1e-5);
      for (size_t i = 0; i < alone.adapters.size(); ++i) {
        expect_values(together.adapters[i], alone.adapters[i], 1e-4);
      }
    });
  }
}

}  // namespace
}  // namespace weft
