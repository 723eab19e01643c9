// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cli/train_options.h"
#include "weft/pipelined_transformer.h"

namespace CLI {
class App;
}

namespace weft::cli {

/// The ranks of the axis pp of --mesh; 0 without one.
int pipeline_ranks(const ParallelOptions& options);

/// Adds the flags of the schedule and the stages; `is_given` is set when a schedule is.
void add_pipeline_flags(CLI::App& command, ParallelOptions& options, bool& is_given);
/// Returns whether a name of --schedule is one of a pipeline.
bool is_pipeline(const std::string& schedule);
/// The program of the ranks along the axis pp.
PipelineProgram program_of(const ParallelOptions& options);
/// The end of each stage's blocks. std::invalid_argument for a --pipeline-split that does not fit.
std::vector<int> stage_ends_of(const TransformerConfig& config, const ParallelOptions& options,
                               const PipelineProgram& program);
/// The options of the stages: a reproducible run computes a row at a time, so that their program
/// has a microbatch for each.
ParallelOptions for_stages(const TrainOptions& options);
/// The relative times of a microbatch's steps.
PipelineTimes step_times(const ParallelOptions& options);

/// Throws std::invalid_argument without an axis pp.
void check_has_pipeline(const ParallelOptions& options);
/// Checks that the stages fit the model. std::invalid_argument naming the flags.
void check_stages(const TransformerConfig& config, const ParallelOptions& options);
/// Checks what the flags of a run with an axis pp say together. std::invalid_argument naming them.
void check_pipeline(const TrainOptions& options, const TransformerConfig& config);

/// The part of all ranks' time in which they wait, with the predicted costs of the stages.
double predicted_bubble(const PipelinedTransformer& pipeline, const TransformerConfig& config,
                        const ParallelOptions& options);

/// The stages of a model over the ranks of --mesh, declared, cut and sharded as the flags say; null
/// without an axis pp.
std::shared_ptr<PipelinedTransformer> pipelined(const Communicator& world,
                                                const TransformerConfig& config,
                                                const ParallelOptions& options);

}  // namespace weft::cli
