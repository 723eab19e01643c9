// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/llama_reference.h"
#include "tests/support/ranks.h"
#include "tests/tp/little_llama.h"
#include "weft/autograd.h"
#include "weft/fsdp.h"
#include "weft/optimizers.h"

namespace weft {
namespace {

/// Applies tensor parallelism, then fully shards over the other axes.
void shard_twice(TransformerModel& model, const DeviceMesh& mesh, const DeviceMesh& data,
                 bool sequence_parallel, const Strategy& strategy) {
  parallelize(model, mesh["tp"],
              transformer_styles(model.config(), {.sequence_parallel = sequence_parallel}));
  FullyShardOptions options;
  options.strategy = strategy;
  for (Module* block : model.blocks()) fully_shard(*block, data, options);
  fully_shard(model, data, options);
}

/// Other strategies and models: tests/fsdp.
TEST(FullySharded, OverTensorParallelEqualsTransformers) {
  on_mesh({{"dp", 2}, {"tp", 2}}, [&](const DeviceMesh& mesh) {
    LlamaSetup setup;
    setup.shard = [&](TransformerModel& model) {
      shard_twice(model, mesh, mesh["dp"], true, Strategy::full_shard());
    };
    setup.batch = [&](const Tensor& whole) { return distribute(whole, mesh, {{"dp", Shard(0)}}); };
    expect_as_transformers("grouped", setup);
  });
}

/// The norm counts each element of the gradients once, and all ranks clip alike.
TEST(FullySharded, ClipsAsOneRank) {
  double alone = 0;
  const auto norm_on = [](const DeviceMesh& mesh) {
    TransformerModel model(little_llama(4, 2));
    shard_twice(model, mesh, mesh["dp"], true, Strategy::full_shard());
    model.materialize();
    const TensorOptions rows{.dtype = i64, .sharding = Sharding(mesh, {{"dp", Shard(0)}})};
    model.loss(some_ids({4, 7}, 1, rows), some_ids({4, 7}, 2, rows)).backward();
    const int64_t calls = mesh.traffic().collectives;
    const int64_t ops = engine_statistics().calls;
    const double norm = gradient_norm(model.parameters()).item();
    // Two operations for each unit's slices, which are contiguous when all elements count, and a
    // square root in f64.
    if (mesh.axis_size(1) == 1) {
      EXPECT_LE(engine_statistics().calls - ops, 2 * 3 + 3);
    }
    EXPECT_EQ(mesh.traffic().collectives - calls, mesh.size() > 1);
    return norm;
  };
  on_mesh({{"dp", 1}, {"tp", 1}}, [&](const DeviceMesh& mesh) { alone = norm_on(mesh); });
  for (const auto& [dp, tp] : {std::pair{2, 2}, {3, 1}, {1, 2}}) {
    on_mesh({{"dp", dp}, {"tp", tp}},
            [&](const DeviceMesh& mesh) { EXPECT_NEAR(norm_on(mesh), alone, 1e-5 * alone); });
  }
}

/// The bytes of a step outside FSDP's schedule equal those listed for the same model without
/// memory.
TEST(FullySharded, ExplainListsWhatIsNotScheduled) {
  for (const auto& axes : {std::vector<MeshAxis>{{"dp", 2}, {"tp", 2}}, {{"dp", 1}, {"tp", 3}}}) {
    for (bool sequence_parallel : {false, true}) {
      on_mesh(axes, [&](const DeviceMesh& mesh) {
        const auto loss_of = [&](TransformerModel& model, Device device) {
          const TensorOptions rows{
              .dtype = i64, .device = device, .sharding = Sharding(mesh, {{"dp", Shard(0)}})};
          return model.loss(some_ids({4, 7}, 1, rows), some_ids({4, 7}, 2, rows));
        };
        TransformerModel planned(little_llama(6, 6)), model(little_llama(6, 6));
        for (TransformerModel* one : {&planned, &model}) {
          shard_twice(*one, mesh, mesh["dp"], sequence_parallel, Strategy::full_shard());
        }
        planned.materialize(meta);
        int64_t listed = 0;
        for (const PlannedCollective& collective :
             planned_collectives(planned, [&] { return loss_of(planned, meta); })) {
          listed += collective.step.bytes;
        }
        model.materialize();
        const int64_t moved = bytes_received(mesh, [&] { loss_of(model, cpu).backward(); });
        EXPECT_EQ(moved - measured_bytes(model).received, listed);
        EXPECT_GT(listed, 0);
      });
    }
  }
}

/// Parameters after three steps of LAMB, whose norms are over parameters that are sharded twice.
TEST(FullySharded, LambStepsAsOnOneRank) {
  std::vector<std::vector<double>> alone;
  const auto learned_on = [](const DeviceMesh& mesh, const Strategy& strategy) {
    TransformerModel model(little_llama(4, 2));
    shard_twice(model, mesh, mesh["dp"], true, strategy);
    model.materialize();
    Lamb optimizer(model.named_parameters(), {.learning_rate = 2e-2});
    const TensorOptions rows{.dtype = i64, .sharding = Sharding(mesh, {{"dp", Shard(0)}})};
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      model.loss(some_ids({4, 7}, step, rows), some_ids({4, 7}, step + 1, rows)).backward();
      const int64_t calls = mesh.traffic().collectives;
      optimizer.step();
      EXPECT_EQ(mesh.traffic().collectives - calls, mesh.size() > 1);
    }
    std::vector<std::vector<double>> values;
    for (const ParameterPtr& parameter : model.parameters()) {
      values.push_back(whole_values(parameter->value()));
    }
    return values;
  };
  on_mesh({{"dp", 1}, {"tp", 1}},
          [&](const DeviceMesh& mesh) { alone = learned_on(mesh, Strategy::full_shard()); });
  for (const Strategy& strategy : {Strategy::full_shard(), Strategy::zero1()}) {
    on_mesh({{"dp", 2}, {"tp", 2}}, [&](const DeviceMesh& mesh) {
      const auto together = learned_on(mesh, strategy);
      for (size_t i = 0; i < alone.size(); ++i) expect_values(together[i], alone[i], 2e-5);
    });
  }
}

}  // namespace
}  // namespace weft
