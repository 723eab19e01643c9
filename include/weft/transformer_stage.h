// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "weft/export.h"
#include "weft/transformer.h"

namespace weft {

/// Leaves in a model that has no memory yet what one stage of a pipeline computes: the blocks
/// [first, end), the embeddings if `first` is 0, the final norm and the head if `end` is the number
/// of layers. Names stay, and so do initial values: those of the whole model. Later stages take
/// hidden states [batch, sequence, dim] in place of ids, in `loss` too; earlier ones return them. A
/// tied head is a separate parameter then, with the values of the embedding.
/// std::invalid_argument for a range that is empty or beyond the layers, an encoder, and a model
/// with memory.
WEFT_API void keep_stage(TransformerModel& model, int64_t first, int64_t end);

/// Calls a stage with {ids}, or with all outputs of the stage before: hidden states and, with a
/// balance loss, the sums that it is computed from. Of the options, what they say of the tokens
/// counts. `targets`, if they are given, keep padding out of the balance loss.
WEFT_API Tensors run_stage(TransformerModel& stage, const Tensors& inputs,
                           const TransformerLossOptions& options = {}, const Tensor& targets = {});
/// The loss of the last stage, called likewise.
WEFT_API Tensor stage_loss(TransformerModel& stage, const Tensors& inputs, const Tensor& targets,
                           const TransformerLossOptions& options = {});

/// Relative costs of the blocks for `sequence` tokens a row, those of the embedding added to the
/// first and those of the head to the last: for `balanced_stages`.
WEFT_API std::vector<double> block_costs(const TransformerConfig& config, int64_t sequence);

}  // namespace weft
