// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "cli/parallel_transformer.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/fsdp.h"
#include "weft/ops.h"
#include "weft/optimizer_named.h"
#include "weft/ranks.h"

namespace weft::cli {

/// Measurements of rank 0 in a step that was predicted: peaks of memory, and bytes received.
struct MeasuredStep {
  std::array<int64_t, kPurposes> memory = {};
  int64_t total = 0, bytes = 0;
};

/// A step as `weft train` takes it.
inline void train_step(ParallelTransformer& model, Optimizer& optimizer,
                       const ParallelOptions& options) {
  const PurposeScope purpose(Purpose::activations);
  optimizer.zero_grad();
  for (int64_t micro_step = 0; micro_step < options.accumulate; ++micro_step) {
    const TensorOptions integers{DType::i64, cpu, model.rows()};
    const Shape shape{model.micro_batch(), options.seq};
    const NoSync no_sync(model.model(), micro_step + 1 < options.accumulate);
    model.differentiate(zeros(shape, integers), zeros(shape, integers)).full_tensor();
  }
  optimizer.step(clip_scale(gradient_norm(model.model().parameters()), 1));
}

/// Measures the third step.
inline MeasuredStep measured_step(const TransformerConfig& config, const ParallelOptions& options,
                                  int ranks) {
  MeasuredStep measured;
  run_ranks(ranks,
            [&](Communicator world) {
              ParallelTransformer model(world, config, options);
              model.shard();
              model.model().materialize();
              NamedOptimizerOptions named;
              named.offload = options.choice.state;
              const auto optimizer =
                  optimizer_named(options.optimizer, model.model().named_parameters(), named);
              for (int i = 0; i < 2; ++i) train_step(model, *optimizer, options);
              reset_peak_memory();
              const int64_t before = model.mesh().traffic().bytes;
              train_step(model, *optimizer, options);
              if (world.rank() != 0) return;
              measured.bytes = model.mesh().traffic().bytes - before;
              const MemoryStatistics memory = memory_statistics();
              measured.total = memory.total.peak;
              for (size_t i = 0; i < kPurposes; ++i) measured.memory[i] = memory.by_purpose[i].peak;
            },
            {.deadline = std::chrono::seconds(20), .threads_per_rank = 1});
  return measured;
}

inline TransformerConfig small_llama(int64_t layers) {
  TransformerConfig config = transformer_config("tiny");
  config.dim = 48;
  config.ffn = 100;
  config.head_dim = 12;
  config.layers = layers;
  config.vocabulary = 67;
  return config;
}

}  // namespace weft::cli
