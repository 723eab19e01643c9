// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "cli/step_cost.h"

namespace weft::cli {

/// The predicted step of a rank of a pipeline.
struct PipelineCost {
  /// The cost of the stages of one position along the axis pp.
  StepCost cost = {};
  StepSeconds seconds = {};
  /// The position, and the most bytes of each one.
  int position = 0;
  std::vector<int64_t> peaks = {};
  /// The part of all ranks' time in which they wait.
  double bubble = 0;
  int stages = 0;
  /// Layers of experts of that position.
  int64_t sparse_layers = 0;
};

/// Predicts a step of rank `rank` on such machines; -1: of rank 0 of those along the axis pp that
/// hold the most. The time is that of the whole pipeline.
PipelineCost pipeline_cost(const TransformerConfig& config, const ParallelOptions& options,
                           int rank, int ranks, int ranks_per_host, const Machine& machine);

/// Changes the cost of a stage to that of one reduction a step: until then each rank keeps whole
/// gradients.
void reduce_once(Module& stage, int64_t micro_steps, StepCost& cost);
/// Runs a micro-step of a stage on `meta`.
void differentiate_stage(ParallelTransformer& stage, const ParallelOptions& options);

}  // namespace weft::cli
