// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cli/train_options.h"
#include "weft/pipelined_transformer.h"

namespace weft::cli {

/// The ranks of the axis pp of --mesh; 0 without one.
int pipeline_ranks(const ParallelOptions& options);

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
