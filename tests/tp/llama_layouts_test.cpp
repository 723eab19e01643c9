// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "tests/tp/little_llama.h"

namespace weft {
namespace {

using Values = std::vector<std::vector<double>>;

/// The gradients of one step of a little Llama.
Values gradients(const DeviceMesh& mesh, const TransformerConfig& config, bool sequence_parallel,
                 bool materialized_before) {
  TransformerModel model(config);
  if (materialized_before) model.materialize();
  parallelize(model, mesh["tp"],
              transformer_styles(config, {.sequence_parallel = sequence_parallel}));
  model.materialize();
  const TensorOptions whole{.dtype = i64, .sharding = Sharding(mesh, {})};
  model.loss(some_ids({3, 7}, 1, whole), some_ids({3, 7}, 2, whole)).backward();
  Values values;
  for (const ParameterPtr& parameter : model.parameters()) {
    values.push_back(whole_values(parameter->grad()));
  }
  return values;
}

/// Three ranks, with a sequence and a vocabulary that are not divisible by 3. The initial values
/// have equal bits, whenever and however they were made.
TEST(LlamaLayouts, EqualOneRankOnThree) {
  const TransformerConfig config = little_llama(6, 3);
  Values alone;
  on_mesh({{"tp", 1}},
          [&](const DeviceMesh& mesh) { alone = gradients(mesh, config, false, false); });
  for (bool sequence_parallel : {false, true}) {
    for (bool materialized_before : {false, true}) {
      on_mesh({{"tp", 3}}, [&](const DeviceMesh& mesh) {
        const Values together = gradients(mesh, config, sequence_parallel, materialized_before);
        for (size_t i = 0; i < alone.size(); ++i) expect_values(together[i], alone[i], 2e-6);
      });
    }
  }
}

/// All traffic before the loss comes from the styles: neither operations nor their gradients cause
/// any.
TEST(LlamaLayouts, CauseNoTrafficButWhatStylesAskFor) {
  for (bool sequence_parallel : {false, true}) {
    on_mesh({{"dp", 2}, {"tp", 2}}, [&](const DeviceMesh& mesh) {
      TransformerModel model(little_llama(4, 2));
      parallelize(model, mesh["tp"],
                  transformer_styles(model.config(), {.sequence_parallel = sequence_parallel}));
      model.materialize();
      const TensorOptions rows{.dtype = i64, .sharding = Sharding(mesh, {{"dp", Shard(0)}})};
      Tensor logits;
      {
        TrafficScope policy(Traffic::free_only);
        logits = model(some_ids({4, 7}, 1, rows));
      }
      expect_placements(logits, {Shard(0), Shard(2)});
      cross_entropy(logits, some_ids({4, 7}, 2, rows)).backward();
    });
  }
}

TEST(LlamaLayouts, CauseNoTrafficOnOneRank) {
  on_mesh({{"tp", 1}}, [&](const DeviceMesh& mesh) {
    TransformerModel model(little_llama(4, 2));
    parallelize(model, mesh["tp"], transformer_styles(model.config(), {.sequence_parallel = true}));
    model.materialize();
    const TensorOptions whole{.dtype = i64, .sharding = Sharding(mesh, {})};
    const int64_t calls = mesh.traffic().collectives;
    model.loss(some_ids({2, 5}, 1, whole), some_ids({2, 5}, 2, whole)).backward();
    EXPECT_EQ(mesh.traffic().collectives, calls);
  });
}

TEST(LlamaLayouts, RecomputeWithEqualBits) {
  Values results[2];
  for (bool recompute : {false, true}) {
    on_mesh({{"tp", 2}}, [&](const DeviceMesh& mesh) {
      TransformerModel model(little_llama(4, 2));
      for (Module* block : model.blocks()) block->set_recompute(recompute);
      parallelize(model, mesh["tp"],
                  transformer_styles(model.config(), {.sequence_parallel = true}));
      model.materialize();
      const TensorOptions whole{.dtype = i64, .sharding = Sharding(mesh, {})};
      model.loss(some_ids({2, 5}, 1, whole), some_ids({2, 5}, 2, whole)).backward();
      for (const ParameterPtr& parameter : model.parameters()) {
        auto gradient = whole_values(parameter->grad());
        if (mesh.rank() == 0) results[recompute].push_back(std::move(gradient));
      }
    });
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace weft
