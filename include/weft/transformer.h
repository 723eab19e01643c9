// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/module.h"
#include "weft/ops/networks.h"
#include "weft/ops/sequences.h"
#include "weft/transformer_config.h"

namespace weft {

/// Keys and values of the tokens that a decoder has seen, one pair a layer: [batch, context,
/// kv heads, head dim], laid out as the model's heads are.
struct KeyValueCache {
  /// The most tokens.
  int64_t context = 0;
  /// Tokens seen so far.
  int64_t position = 0;
  std::vector<std::pair<Tensor, Tensor>> layers = {};
};

/// The parts that all blocks of a model share.
struct TransformerState;

/// Options of `TransformerModel::loss`.
struct TransformerLossOptions {
  /// Integers [batch, sequence], numbers of the documents that rows are packed with: tokens attend
  /// to their own document only, whose positions start at 0. Empty: a row is one document.
  Tensor segments = {};
  /// Results of `share_sequence` for a batch whose tokens are in any order; then `segments` must be
  /// empty. Empty: the tokens of a row are in their order.
  Tensor positions = {};
  TokenOrder order = {};
  /// mean: over the targets that count. sum: times their number, with the balance loss: a mean over
  /// several batches is the sum of their sums, divided by the number of all their targets. none:
  /// the losses of the tokens, f32 [batch, sequence], without the balance loss.
  LossReduction reduction = LossReduction::mean;
  /// Divisor of the sum, such as the number of targets of all batches of a step; 0: none.
  double divisor = 0;
};

/// A transformer as its config states: token and position embeddings, blocks of attention and
/// feed-forward, a final norm, and a head. Parameters are named as in Hugging Face's Llama
/// ("model.layers.0.self_attn.q_proj.weight"), whatever the family.
class WEFT_API TransformerModel : public Module {
 public:
  /// std::invalid_argument when the sizes do not fit each other.
  explicit TransformerModel(const TransformerConfig& config);

  const TransformerConfig& config() const;
  /// The blocks, "model.layers.<i>", first to last.
  std::vector<Module*> blocks();
  /// The groups of modules to pass to `fully_shard`, before the whole model: each block, the token
  /// embedding, and the final norm with the head. A tied model has the blocks only: embedding, norm
  /// and head are then one group, that of the model.
  std::vector<std::vector<Module*>> units();

  /// Cross entropy of the logits of `ids` [batch, sequence] against `targets` [batch, sequence],
  /// their mean unless the options state another reduction. Targets equal to kIgnoredTarget do not
  /// count. While gradients are recorded, the balance loss of the config is added.
  Tensor loss(const Tensor& ids, const Tensor& targets, const TransformerLossOptions& options = {});
  /// The balance loss in the last such loss, without its coefficient; empty without one.
  const Tensor& balance_loss() const { return balance_loss_; }
  /// How attention to tokens in another order than theirs moves keys.
  void set_sequence_way(SequenceWay way);
  /// Logits [batch, 1, vocabulary] that follow the last of `ids` [batch, n], which follow those
  /// that `cache` has seen: a prompt first, then one token a call. Adds them to the cache. The
  /// model is cut by its styles or whole, not fully sharded. std::invalid_argument beyond the
  /// context.
  Tensor decode(const Tensor& ids, KeyValueCache& cache);
  /// The same for rows that have seen different numbers of tokens: one cache for each row of `ids`,
  /// or one for all.
  Tensor decode(const Tensor& ids, std::span<KeyValueCache* const> caches);

 protected:
  /// {ids [batch, sequence]} -> {logits [batch, sequence, vocabulary]}; without a head {hidden
  /// states [batch, sequence, dim]} and, with a pooler, {..., pooled [batch, dim]}. A decoder takes
  /// a second input, segments: integers [batch, sequence], the numbers of the documents that rows
  /// are packed with. The logits of a document are those that it has as a separate row. With four
  /// inputs, {ids, segments or empty, positions, places}, the tokens are in any order: positions
  /// count in documents, places in rows (`share_sequence`). An
  /// encoder takes a second input, bool [batch, sequence], true where a token counts, and with
  /// token types a third, their ids [batch, sequence]. The second may be an empty Tensor.
  Tensors forward(const Tensors& inputs) override;

 private:
  void check_inputs(const Tensors& inputs) const;
  Tensor head_loss(const Tensor& hidden, const Tensor& targets, LossReduction reduction);
  /// The input of the head's linear layer.
  Tensor transformed(const Tensor& hidden);
  Tensor logits_of(const Tensor& hidden);

  std::shared_ptr<TransformerState> state_;
  std::shared_ptr<Module> model_;
  std::shared_ptr<Module> head_;
  Tensor balance_loss_;
};

/// Parameters of a model; of those the ones that compute a token, of experts only the chosen; and
/// of these the ones that it is multiplied with: not the table that its row is read from.
struct ParameterCounts {
  int64_t total = 0, active = 0, multiplied = 0;
};
WEFT_API ParameterCounts parameters_of(const TransformerConfig& config);

/// Makes one block, for models with other inputs and outputs than TransformerModel:
/// {[batch, sequence, dim], ...} -> [batch, sequence, dim], attention and feed-forward as the
/// config states them for layer `layer`. The second input may be a mask, bool [batch, sequence]; or
/// for a decoder segments, integers [batch, sequence], and the third the positions of their tokens
/// (`document_positions`, which it calls without a third). The config's vocabulary does not matter.
/// std::invalid_argument when the sizes do not fit each other.
WEFT_API std::shared_ptr<Module> transformer_block(const TransformerConfig& config,
                                                   int64_t layer = 0);

/// Floating-point operations per token of training, forward and backward, in rows of `sequence`
/// tokens: 6 per active parameter except those of an untied embedding table, plus 12 x layers x
/// width of the heads x sequence for attention, where masked positions count (Chowdhery et al.
/// 2022, PaLM, appendix B). Recompute does not count.
WEFT_API double training_operations_a_token(const TransformerConfig& config, int64_t sequence);

}  // namespace weft
