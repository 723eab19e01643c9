// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/export.h"
#include "weft/layers.h"
#include "weft/module.h"
#include "weft/transformer_config.h"

namespace weft {

struct AttendedTokens;
struct TransformerState;

/// Sizes of multi-head latent attention (DeepSeek-V2), with the names of its config.json.
struct LatentAttentionConfig {
  int64_t dim = 0, heads = 0;
  /// Width of the queries' latent; 0: queries are computed from the input.
  int64_t q_lora_rank = 0;
  /// Width of the latent of keys and values.
  int64_t kv_lora_rank = 0;
  /// A head's dims without and with rotary position embedding, and those of its values.
  int64_t qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  double rope_theta = 10000;
  /// With `mscale_all_dim` the logits are scaled too, as in DeepSeek's.
  RopeScaling rope_scaling = {};
  /// Pairs of the rotary embedding are neighbours in the weights, as in DeepSeek's files.
  bool rope_interleave = true;
  /// q_a_proj, kv_a_proj_with_mqa and o_proj have a bias.
  bool bias = false;
  /// Probability of dropout of the attention's probabilities while training.
  double dropout = 0;
  double norm_eps = 1e-6;
  /// Scale of the logits; 0 means 1 / sqrt(qk_nope_head_dim + qk_rope_head_dim).
  double scale = 0;
  std::optional<double> deviation = {};
};

/// Causal multi-head latent attention: {[batch, sequence, dim]} -> the same; further inputs may be
/// segments and positions, integers [batch, sequence], as of a block (`transformer_block`). Keys
/// and values of all heads are made from one latent of each position. Children, by Hugging Face's
/// names: q_proj, or q_a_proj, q_a_layernorm and q_b_proj; kv_a_proj_with_mqa, kv_a_layernorm,
/// kv_b_proj, o_proj. Heads may be sharded: q_proj or q_b_proj and kv_b_proj Colwise, o_proj
/// Rowwise.
class WEFT_API LatentAttention : public Module {
 public:
  /// std::invalid_argument for sizes below 1, or an odd qk_rope_head_dim.
  explicit LatentAttention(const LatentAttentionConfig& config);
  /// The attention of layer `layer` of a model, whose blocks share `state`: it rotates as they do,
  /// and keeps the latents and the rotated keys of the tokens that the model's cache has seen.
  LatentAttention(const LatentAttentionConfig& config, std::shared_ptr<TransformerState> state,
                  int64_t layer);
  const LatentAttentionConfig& config() const { return config_; }

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  Tensor queries(const Tensor& x);
  Tensor rotated(const Tensor& x, const Tensor& positions) const;
  Tensor attended(const Tensor& q, const Tensor& latent, const AttendedTokens& tokens);

  LatentAttentionConfig config_;
  std::shared_ptr<TransformerState> state_;
  int64_t layer_;
  std::shared_ptr<Module> q_a_, q_norm_, q_, kv_a_, kv_norm_, kv_b_, o_;
};

}  // namespace weft
