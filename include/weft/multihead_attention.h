// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/export.h"
#include "weft/layers.h"
#include "weft/module.h"

namespace weft {

struct MultiheadAttentionOptions {
  /// Probability of dropout of the attention's probabilities while training.
  double dropout = 0;
  bool bias = true;
  /// Widths of keys and values; missing: that of queries.
  std::optional<int64_t> kdim = {}, vdim = {};
  /// Tensors are [batch, sequence, dim], otherwise [sequence, batch, dim].
  bool batch_first = false;
};

/// Which keys the queries of a call attend to, with the meaning of torch.nn.
struct MultiheadMasks {
  /// [batch, keys]: bool, true where a key is ignored; or numbers that are added to the scores.
  Tensor key_padding_mask = {};
  /// [queries, keys] or [batch * heads, queries, keys]: bool, true where a query does not attend;
  /// or numbers that are added.
  Tensor attn_mask = {};
  /// A query attends to keys up to its own position.
  bool is_causal = false;
};

/// Attention of projected queries, keys and values, each [batch, sequence, dim], by heads: {[batch,
/// queries, dim]} and, with `weights`, the probabilities [batch, heads, queries, keys]. A query
/// without keys gives zeros, where PyTorch gives NaN.
WEFT_API Tensors multihead_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                     int64_t heads, const MultiheadMasks& masks = {},
                                     double dropout = 0, bool weights = false);

/// Whether a call returns the probabilities too, averaged over the heads or of each head.
enum class AttentionWeights : uint8_t { none, averaged, by_head };

/// torch.nn.MultiheadAttention, with its names in state dicts: in_proj_weight [3 dim, dim], or
/// q_proj_weight, k_proj_weight and v_proj_weight where widths differ; in_proj_bias [3 dim];
/// out_proj. {query, key, value} -> {output}.
class WEFT_API MultiheadAttention : public Module {
 public:
  /// std::invalid_argument for sizes below 1, or a dim that heads do not divide.
  MultiheadAttention(int64_t dim, int64_t heads, const MultiheadAttentionOptions& options = {});
  int64_t dim() const { return dim_; }
  int64_t heads() const { return heads_; }
  const MultiheadAttentionOptions& options() const { return options_; }
  /// Returns {output} and, if asked for, the probabilities [batch, queries, keys] or [batch, heads,
  /// queries, keys].
  Tensors attend(const Tensor& query, const Tensor& key, const Tensor& value,
                 const MultiheadMasks& masks = {},
                 AttentionWeights weights = AttentionWeights::none);

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  Tensors computed(const Tensors& inputs, const MultiheadMasks& masks, AttentionWeights weights);

  int64_t dim_, heads_;
  MultiheadAttentionOptions options_;
  std::shared_ptr<Linear> out_proj_;
};

}  // namespace weft
