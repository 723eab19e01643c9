// SPDX-License-Identifier: Apache-2.0
// The cost of a step with adapters: memory is predicted, a frozen base has no gradients and no
// state, and adapters move little.
#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "weft/adapters.h"
#include "weft/context.h"
#include "weft/memory_budget.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/tensor_parallel.h"
#include "weft/transformer.h"

namespace weft {
namespace {

/// The settings of a model besides its config.
struct Base {
  const char* name;
  bool adapters = false;
  int bits = 0;
  bool recompute = false;
};

TransformerConfig config_of_test() {
  // Two ranks of tp divide the blocks of quantized weights.
  TransformerConfig config{256, 3, 8, 2, 32, 384, 37};
  config.max_sequence = 32;
  return config;
}

Tensor ids_on(const DeviceMesh& mesh, Device device) {
  return zeros({6, 32}, {i64, device, Sharding(mesh, {{"dp", Shard(0)}})});
}

void take_step(TransformerModel& model, const DeviceMesh& mesh, Device device) {
  model.loss(ids_on(mesh, device), ids_on(mesh, device)).backward();
}

StepModel built(const DeviceMesh& mesh, const Base& base) {
  const auto model = std::make_shared<TransformerModel>(config_of_test());
  if (base.adapters) add_adapters(*model, {.rank = 5, .targets = {"all-linear"}});
  if (base.bits > 0) quantize_base(*model, base.bits);
  if (mesh.ndim() > 1) parallelize(*model, mesh["tp"], transformer_styles(model->config()));
  for (Module* block : model->blocks()) block->set_recompute(base.recompute);
  return {.model = model, .blocks = model->blocks(), .micro_step = [model, mesh] {
            take_step(*model, mesh, meta);
          }};
}

/// The peaks of the third step.
MemoryStatistics measured(const DeviceMesh& mesh, const Base& base) {
  const StepModel step = built(mesh, base);
  auto& model = dynamic_cast<TransformerModel&>(*step.model);
  shard_units(step, mesh["dp"], {});
  model.materialize();
  AdamW optimizer(model.named_parameters());
  for (int i = 0; i < 3; ++i) {
    if (i == 2) reset_peak_memory();
    const PurposeScope purpose(Purpose::activations);
    optimizer.zero_grad();
    take_step(model, mesh, cpu);
    optimizer.step(clip_scale(gradient_norm(model.parameters()), 1));
  }
  return memory_statistics();
}

TEST(AdaptersCost, MemoryIsPredicted) {
  for (const std::vector<MeshAxis>& axes :
       {std::vector<MeshAxis>{{"dp", 1}}, {{"dp", 3}}, {{"dp", 2}, {"tp", 2}}}) {
    on_mesh(axes, [&](const DeviceMesh& mesh) {
      std::map<std::string, StepCost> costs;
      for (const Base& base : {Base{"all"}, Base{"lora", true}, Base{"int8", true, 8},
                               Base{"int4", true, 4}, Base{"int4_recomputed", true, 4, true}}) {
        SCOPED_TRACE(base.name);
        const StepCost cost = costs[base.name] =
            step_cost([&] { return built(mesh, base); }, mesh["dp"], {});
        const MemoryStatistics found = measured(mesh, base);
        for (const Purpose purpose : {Purpose::parameters, Purpose::gradients, Purpose::optimizer,
                                      Purpose::gathered, Purpose::activations}) {
          const auto at = static_cast<size_t>(purpose);
          const auto predicted = static_cast<double>(cost.memory[at]);
          const auto peak = static_cast<double>(found.by_purpose[at].peak);
          EXPECT_LE(peak, predicted + 4096) << name_of(purpose);
          EXPECT_GE(peak, 0.95 * predicted - 4096) << name_of(purpose);
        }
        EXPECT_LE(found.total.peak, cost.peak_bytes());
      }
      const auto bytes = [&](const char* base, Purpose purpose) {
        return static_cast<double>(costs.at(base).memory[static_cast<size_t>(purpose)]);
      };
      EXPECT_LT(bytes("lora", Purpose::gradients), 0.1 * bytes("all", Purpose::gradients));
      EXPECT_LT(bytes("lora", Purpose::optimizer), 0.1 * bytes("all", Purpose::optimizer));
      EXPECT_LT(bytes("int4", Purpose::parameters), 0.3 * bytes("all", Purpose::parameters));
      EXPECT_LE(bytes("int4", Purpose::gathered), 0.3 * bytes("all", Purpose::gathered));
    });
  }
}

/// Bytes that tensor parallelism moves in forward, and in backward.
std::pair<int64_t, int64_t> moved(const DeviceMesh& mesh, const Base& base) {
  const StepModel step = built(mesh, base);
  auto& model = dynamic_cast<TransformerModel&>(*step.model);
  std::pair<int64_t, int64_t> bytes;
  const auto loss = [&] { return model.loss(ids_on(mesh, meta), ids_on(mesh, meta)); };
  for (const PlannedCollective& one : planned_collectives(model, loss)) {
    (one.backward ? bytes.second : bytes.first) += one.step.bytes;
  }
  return bytes;
}

/// The sums of row-parallel products take those of their adapters along.
TEST(AdaptersCost, AddsNoTrafficToForward) {
  on_mesh({{"dp", 1}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    const auto all = moved(mesh, {"all"}), lora = moved(mesh, {"lora", true});
    EXPECT_EQ(lora.first, all.first);
    EXPECT_GT(all.first, 0);
    // Gradients of the whole matrices: rank 5 times the widths of the layers.
    EXPECT_LE(lora.second, all.second + 3 * 5 * (256 + 384) * 7 * 4);
    EXPECT_EQ(moved(mesh, {"int4", true, 4}).first, all.first);
  });
}

}  // namespace
}  // namespace weft
