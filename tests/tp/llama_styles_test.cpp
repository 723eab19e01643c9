// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/llama_reference.h"
#include "tests/support/ranks.h"
#include "tests/tp/little_llama.h"
#include "weft/autograd.h"
#include "weft/optimizers.h"

namespace weft {
namespace {

struct Arrangement {
  std::vector<MeshAxis> axes;
  bool sequence_parallel;
  std::vector<const char*> models;
};

std::string arrangement_name(const testing::TestParamInfo<Arrangement>& info) {
  std::string name;
  for (const MeshAxis& axis : info.param.axes) name += axis.name + std::to_string(axis.size);
  return name + (info.param.sequence_parallel ? "sequence" : "");
}

class LlamaStyles : public testing::TestWithParam<Arrangement> {};

/// Logits, gradients and the losses of 20 steps, without a byte that no style asked for before the
/// loss.
TEST_P(LlamaStyles, EqualTransformers) {
  const auto& [axes, sequence_parallel, models] = GetParam();
  for (const char* name : models) {
    on_mesh(axes, [&, sequence = sequence_parallel](const DeviceMesh& mesh) {
      LlamaSetup setup;
      setup.shard = [&](Llama& model) {
        parallelize(model, mesh["tp"],
                    llama_styles(model.config(), {.sequence_parallel = sequence}));
      };
      setup.batch = [&](const Tensor& whole) {
        return distribute(whole, mesh,
                          mesh.ndim() == 1 ? Placements() : Placements({{"dp", Shard(0)}}));
      };
      expect_as_transformers(name, setup);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, LlamaStyles,
    testing::Values(Arrangement{{{"tp", 1}}, true, {"grouped"}},
                    Arrangement{{{"tp", 2}}, false, {"heads", "grouped", "grouped_tied"}},
                    Arrangement{{{"tp", 2}}, true, {"heads", "grouped", "grouped_tied"}},
                    Arrangement{{{"tp", 4}}, false, {"heads"}},
                    Arrangement{{{"tp", 4}}, true, {"heads"}},
                    Arrangement{{{"dp", 2}, {"tp", 2}}, false, {"grouped_tied"}},
                    Arrangement{{{"dp", 2}, {"tp", 2}}, true, {"grouped", "grouped_tied"}}),
    arrangement_name);

using Values = std::vector<std::vector<double>>;

/// The gradients of one step of a little Llama.
Values gradients(const DeviceMesh& mesh, const LlamaConfig& config, bool sequence_parallel,
                 bool materialized_before) {
  Llama model(config);
  if (materialized_before) model.materialize();
  parallelize(model, mesh["tp"], llama_styles(config, {.sequence_parallel = sequence_parallel}));
  model.materialize();
  const TensorOptions whole{.dtype = i64, .sharding = Sharding(mesh, {})};
  model.loss(some_ids({3, 7}, 1, whole), some_ids({3, 7}, 2, whole)).backward();
  Values values;
  for (const ParameterPtr& parameter : model.parameters()) {
    values.push_back(whole_values(parameter->grad()));
  }
  return values;
}

/// Three ranks, a sequence and a vocabulary that they do not divide; the initial values are the
/// same bits, however and whenever they were made.
TEST(LlamaStylesOnThreeRanks, EqualOneRank) {
  const LlamaConfig config = little_llama(6, 3);
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

/// All traffic before the loss is what styles ask for: operations cause none, neither do their
/// gradients.
TEST(LlamaStylesTraffic, IsWhatStylesAskFor) {
  for (bool sequence_parallel : {false, true}) {
    on_mesh({{"dp", 2}, {"tp", 2}}, [&](const DeviceMesh& mesh) {
      Llama model(little_llama(4, 2));
      parallelize(model, mesh["tp"],
                  llama_styles(model.config(), {.sequence_parallel = sequence_parallel}));
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

TEST(LlamaStylesTraffic, IsNoneOnOneRank) {
  on_mesh({{"tp", 1}}, [&](const DeviceMesh& mesh) {
    Llama model(little_llama(4, 2));
    parallelize(model, mesh["tp"], llama_styles(model.config(), {.sequence_parallel = true}));
    model.materialize();
    const TensorOptions whole{.dtype = i64, .sharding = Sharding(mesh, {})};
    const int64_t calls = mesh.traffic().collectives;
    model.loss(some_ids({2, 5}, 1, whole), some_ids({2, 5}, 2, whole)).backward();
    EXPECT_EQ(mesh.traffic().collectives, calls);
  });
}

TEST(LlamaStylesTraffic, RecomputesWithEqualBits) {
  Values results[2];
  for (bool recompute : {false, true}) {
    on_mesh({{"tp", 2}}, [&](const DeviceMesh& mesh) {
      Llama model(little_llama(4, 2));
      for (Module* block : model.blocks()) block->set_recompute(recompute);
      parallelize(model, mesh["tp"], llama_styles(model.config(), {.sequence_parallel = true}));
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
