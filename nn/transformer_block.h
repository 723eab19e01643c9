// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/layers.h"
#include "weft/ops/shapes.h"
#include "weft/transformer.h"

namespace weft {

/// Rotary position embedding of some layers of a model.
class Rotary {
 public:
  Rotary(const TransformerConfig& config, double theta, const RopeScaling& scaling);

  /// Rotates x [batch, n, heads, head dim], the tokens from `position` on.
  Tensor operator()(const Tensor& x, int64_t position);
  /// Rotates the tokens at `positions` [batch, n], which restart with each document of a row.
  Tensor operator()(const Tensor& x, const Tensor& positions);

 private:
  bool is_plain() const;
  const Tensor& frequencies_on(const Tensor& x, int64_t length);

  TransformerConfig config_;
  double theta_;
  RopeScaling scaling_;
  double factor_;
  /// The last tensor of frequencies, its values, and the layout of the operands that it is for.
  std::vector<double> values_;
  Tensor tensor_;
  Sharding sharding_;
};

struct TransformerState {
  explicit TransformerState(const TransformerConfig& config);

  const TransformerConfig config;
  SequenceWay sequence_way = SequenceWay::automatic;
  /// The rotation of most layers, and that of those with a window.
  Rotary rotary, local_rotary;
  /// Set while the model decodes: the cache of the rows at hand, and those of all rows.
  KeyValueCache* cache = nullptr;
  std::span<KeyValueCache* const> caches = {};

  /// The blocks that this model has, [first, end): all, or those of a stage of a pipeline.
  int64_t first_block = 0, end_block;
  /// Sums over the blocks of the stages before, for the balance loss: of scores and of choices;
  /// empty in the first stage.
  Tensors balance = {};
  /// Set while a stage runs: 1 for the tokens that count for the balance loss, 0 for the others;
  /// empty: all count.
  Tensor counts = {};
  bool is_first_stage() const { return first_block == 0; }
  bool is_last_stage() const { return end_block == config.layers; }

  /// The position of the first token at hand.
  int64_t position() const { return cache ? cache->position : 0; }
  /// Returns what `use` makes of `xs`, tensors [batch, ...]. While rows decode that have separate
  /// caches, it makes it of each row, with `cache` set to that of the row.
  template <class Use> Tensor by_rows(const Tensors& xs, const Use& use) {
    if (caches.size() < 2) return use(xs);
    Tensors made;
    for (size_t row = 0; row < caches.size(); ++row) {
      cache = caches[row];
      Tensors of_row;
      const auto at = static_cast<int64_t>(row);
      for (const Tensor& x : xs) of_row.push_back(slice(x, 0, at, at + 1));
      made.push_back(use(of_row));
    }
    return cat(made, 0);
  }
};

/// The state of a model's blocks.
TransformerState& state_of(TransformerModel& model);

/// The inputs of a block and its attention besides the hidden states, told apart by dtype.
struct AttendedTokens {
  /// An encoder has a mask, of bools, or an empty one. A decoder has documents and the positions of
  /// their tokens, or empty tensors.
  Tensor mask, segments, positions;
  /// The places of tokens in their rows, if these are in another order; or empty.
  Tensor places;

  /// `inputs` are {x}, {x, mask}, {x, segments}, {x, segments, positions} or, of tokens in any
  /// order, {x, segments or empty, positions, places}.
  AttendedTokens(const TransformerConfig& config, const Tensors& inputs);
};

/// Causal attention to the tokens as they are ordered; `options` has no segments yet.
Tensor attended_tokens(const TransformerState& state, const Tensor& q, const Tensor& k,
                       const Tensor& v, const AttendedTokens& tokens, AttentionOptions options);

inline std::shared_ptr<Linear> make_linear(const TransformerConfig& config, int64_t in, int64_t out,
                                           bool bias) {
  return std::make_shared<Linear>(in, out, bias, config.deviation);
}

/// Returns [batch, sequence, heads * d] as [batch, sequence, heads, d].
inline Tensor by_head(const Tensor& x, int64_t heads) {
  return reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads});
}

/// Makes the norm that the config states: [..., dim] -> [..., dim].
std::shared_ptr<Module> make_norm(const TransformerConfig& config, int64_t dim);

/// Applies the config's activation.
Tensor activated(Activation activation, const Tensor& x);

/// Makes the attention of layer `layer`: {[batch, sequence, dim], ...} -> [batch, sequence, dim],
/// with further inputs as AttendedTokens.
std::shared_ptr<Module> make_attention(const std::shared_ptr<TransformerState>& state,
                                       int64_t layer);

/// Makes the feed-forward of the config's sizes and choices: [..., dim] -> [..., dim]. Without a
/// deviation the initial values are those of a Linear.
std::shared_ptr<Module> make_feed_forward(const TransformerConfig& config,
                                          std::optional<double> deviation);

/// Makes block number `layer`, {[batch, sequence, dim], ...} -> [batch, sequence, dim]: attention
/// and feed-forward, normalised where the config states, each added to its input. Further inputs
/// are those of the attention. With a balance loss, a block of experts also returns the mean scores
/// of its router and the choices a token, both [experts].
std::shared_ptr<Module> make_transformer_block(const std::shared_ptr<TransformerState>& state,
                                               int64_t layer);

/// 1 for the places of each row up to its last target that counts, 0 for the others: padding.
/// `places` of the tokens in their rows, if these are in another order.
Tensor without_padding(const Tensor& targets, const Tensor& places = {});

/// The inputs of a model: ids or hidden states, and what the options say of their tokens.
Tensors inputs_of(const Tensor& ids, const TransformerLossOptions& options);

}  // namespace weft
