// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/fsdp.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/pipelined_transformer.h"
#include "weft/tensor_parallel.h"
#include "weft/transformer.h"

namespace weft {

/// No size is divisible by 2, 3 or 4, but heads are by 2.
inline TransformerConfig little_decoder(int64_t layers = 5, bool tied = false) {
  TransformerConfig config{24, layers, 4, 2, 6, 22, 37};
  config.deviation = 0.2;
  config.tied = tied;
  return config;
}

/// Rows of microbatch `m` in step `step`, without a mesh: some targets do not count.
inline TrainingBatch little_batch(int64_t rows, int step, int m) {
  std::vector<double> ids, targets;
  for (int64_t i = 0; i < rows * 7; ++i) {
    ids.push_back(static_cast<double>((i * i * 5 + i * 11 + step * 31 + m * 17) % 37));
    const bool counts = (i + m) % (m + 3) != 0;
    targets.push_back(counts ? static_cast<double>((i * 3 + step + m) % 37) : kIgnoredTarget);
  }
  return {from_values(ids, {rows, 7}, {.dtype = i64}),
          from_values(targets, {rows, 7}, {.dtype = i64})};
}

/// Each microbatch's part of all targets that count.
inline std::vector<double> little_weights(int64_t rows, int step, int microbatches) {
  std::vector<double> counts;
  double all = 0;
  for (int m = 0; m < microbatches; ++m) {
    double count = 0;
    const Tensor targets = little_batch(rows, step, m).targets;
    for (const int64_t target : targets.to_vector<int64_t>()) count += target != kIgnoredTarget;
    counts.push_back(count);
    all += count;
  }
  for (double& count : counts) count /= all;
  return counts;
}

/// The results of a step: its loss, the norm of the gradients, and the gradients or values by name.
struct LittleStep {
  double loss = 0, norm = 0;
  std::map<std::string, std::vector<float>> values;
};

inline void expect_near(const LittleStep& made, const LittleStep& expected, const char* what,
                        double bound = 1e-5) {
  EXPECT_NEAR(made.loss, expected.loss, bound * std::abs(expected.loss)) << what;
  EXPECT_NEAR(made.norm, expected.norm, bound * expected.norm) << what;
  for (const auto& [name, values] : made.values) {
    const auto found = expected.values.find(
        name == "lm_head.weight" && !expected.values.contains(name) ? "model.embed_tokens.weight"
                                                                    : name);
    ASSERT_NE(found, expected.values.end()) << name;
    ASSERT_EQ(values.size(), found->second.size());
    double most = 1e-30, off = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      most = std::max<double>(most, std::abs(found->second[i]));
      off = std::max<double>(off, std::abs(found->second[i] - values[i]));
    }
    EXPECT_LE(off / most, bound) << what << ' ' << name;
  }
}

/// Steps of one rank without a pipeline. With a learning rate, values follow the last step's
/// update; without, gradients.
inline LittleStep on_one_rank(const TransformerConfig& config, int64_t rows, int microbatches,
                              int steps, double rate) {
  LittleStep result;
  run_ranks(1, [&](Communicator) {
    TransformerModel model(config);
    model.materialize();
    AdamW optimizer(model.named_parameters(), {.learning_rate = rate});
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      const std::vector<double> weights = little_weights(rows, step, microbatches);
      result.loss = 0;
      for (int m = 0; m < microbatches; ++m) {
        const TrainingBatch batch = little_batch(rows, step, m);
        const Tensor loss =
            mul(model.loss(batch.ids, batch.targets), weights[static_cast<size_t>(m)]);
        loss.backward();
        result.loss += loss.item();
      }
      result.norm = clip_grad_norm(model.parameters(), 1);
      if (rate > 0) optimizer.step();
    }
    for (const NamedParameter& named : model.named_parameters()) {
      const Tensor& value = named.parameter->value();
      result.values[named.name()] = (rate > 0 ? value : value.grad()).to_vector<float>();
    }
  });
  return result;
}

/// How a stage is sharded.
using StageCut = std::function<void(TransformerModel& stage, const DeviceMesh& mesh)>;

inline Tensor on_rows(const Tensor& whole, const DeviceMesh& mesh) {
  std::vector<NamedPlacement> placements;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    const std::string& name = mesh.axis_name(axis);
    if (name != "tp" && name != "cp") placements.push_back({name, Shard(0)});
  }
  return distribute(whole, mesh, Placements(std::span<const NamedPlacement>(placements)));
}

/// The same on the ranks of a pipeline, by each rank.
struct LittlePipeline {
  LittlePipeline(const DeviceMesh& mesh, const TransformerConfig& config,
                 const PipelineProgram& program, double rate, const StageCut& cut = {})
      : model(mesh, config, program, 7) {
    for (const auto& stage : model.stages()) {
      if (cut) cut(*stage, model.stage_mesh());
    }
    for (int axis = 0; axis < model.stage_mesh().ndim(); ++axis) {
      if (model.stage_mesh().axis_name(axis) == "cp") model.share_sequences("cp");
    }
    model.materialize();
    optimizer.emplace(model.named_parameters(), AdamWOptions{.learning_rate = rate});
  }

  LittleStep step(int64_t rows, int step, bool updates) {
    const int microbatches = model.pipeline().program().microbatches;
    std::vector<TrainingBatch> batches;
    const bool is_laid_out = model.stages()[0]->parameters()[0]->value().is_sharded();
    for (int m = 0; m < microbatches; ++m) {
      TrainingBatch batch = little_batch(rows, step, m);
      if (is_laid_out) {
        batch = {on_rows(batch.ids, model.stage_mesh()),
                 on_rows(batch.targets, model.stage_mesh())};
      }
      batches.push_back(batch);
    }
    optimizer->zero_grad();
    LittleStep result;
    for (const double loss :
         model.differentiate(batches, little_weights(rows, step, microbatches))) {
      result.loss += loss;
    }
    result.norm = model.clip_grad_norm(1);
    if (updates) optimizer->step();
    return result;
  }
  std::map<std::string, std::vector<float>> values(bool gradients) const {
    std::map<std::string, std::vector<float>> all;
    for (const NamedParameter& named : model.named_parameters()) {
      const Tensor& value = named.parameter->value();
      all[named.name()] = (gradients ? value.grad() : value).full_tensor().to_vector<float>();
    }
    return all;
  }

  PipelinedTransformer model;
  std::optional<AdamW> optimizer;
};

}  // namespace weft
