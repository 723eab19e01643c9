// SPDX-License-Identifier: Apache-2.0
#include "weft/latent_attention.h"

#include <algorithm>
#include <cmath>

#include "nn/checks.h"
#include "nn/transformer_block.h"
#include "weft/ops/attention.h"
#include "weft/ops/shapes.h"

namespace weft {

static void check_latent(const LatentAttentionConfig& config) {
  check_positive("latent_attention", "dim", config.dim);
  check_positive("latent_attention", "heads", config.heads);
  check_positive("latent_attention", "kv_lora_rank", config.kv_lora_rank);
  check_positive("latent_attention", "qk_nope_head_dim", config.qk_nope_head_dim);
  check_positive("latent_attention", "qk_rope_head_dim", config.qk_rope_head_dim);
  check_positive("latent_attention", "v_head_dim", config.v_head_dim);
  if (config.q_lora_rank < 0) {
    fail("latent_attention: q_lora_rank must be at least 0, got ", config.q_lora_rank);
  }
  if (config.qk_rope_head_dim % 2 != 0) {
    fail("latent_attention: qk_rope_head_dim is ", config.qk_rope_head_dim,
         ", expected an even number");
  }
}

/// The factor of the logits.
static double scale_of(const LatentAttentionConfig& c) {
  const auto width = static_cast<double>(c.qk_nope_head_dim + c.qk_rope_head_dim);
  const double scale = c.scale != 0 ? c.scale : 1 / std::sqrt(width);
  const RopeScaling& rope = c.rope_scaling;
  if (rope.kind == RopeScalingKind::none || rope.mscale_all_dim == 0 || rope.factor <= 1) {
    return scale;
  }
  const double factor = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1;
  return scale * factor * factor;
}

LatentAttention::LatentAttention(const LatentAttentionConfig& config) : config_(config) {
  check_latent(config);
  config_.scale = scale_of(config);
  rotary_ = std::make_unique<Rotary>(TransformerConfig{.head_dim = config.qk_rope_head_dim},
                                     config.rope_theta, config.rope_scaling);
  const auto linear_of = [&](int64_t in, int64_t out, bool bias = false) {
    return std::make_shared<Linear>(in, out, bias, config.deviation);
  };
  const int64_t query = config.heads * (config.qk_nope_head_dim + config.qk_rope_head_dim);
  if (config.q_lora_rank > 0) {
    q_a_ = add("q_a_proj", linear_of(config.dim, config.q_lora_rank, config.bias));
    q_norm_ = add("q_a_layernorm", std::make_shared<RMSNorm>(config.q_lora_rank, config.norm_eps));
    q_ = add("q_b_proj", linear_of(config.q_lora_rank, query));
  } else {
    q_ = add("q_proj", linear_of(config.dim, query));
  }
  kv_a_ = add("kv_a_proj_with_mqa",
              linear_of(config.dim, config.kv_lora_rank + config.qk_rope_head_dim, config.bias));
  kv_norm_ = add("kv_a_layernorm", std::make_shared<RMSNorm>(config.kv_lora_rank, config.norm_eps));
  kv_b_ = add("kv_b_proj", linear_of(config.kv_lora_rank,
                                     config.heads * (config.qk_nope_head_dim + config.v_head_dim)));
  o_ = add("o_proj", linear_of(config.heads * config.v_head_dim, config.dim, config.bias));
}

LatentAttention::~LatentAttention() = default;

Tensor LatentAttention::queries(const Tensor& x) {
  const Tensor latent = q_a_ ? (*q_norm_)((*q_a_)(x)) : x;
  return by_head((*q_)(latent), config_.heads);
}

/// Rotates x [batch, sequence, heads, qk_rope_head_dim]. Neighbours become pairs (i, i + d / 2), in
/// queries and keys alike.
Tensor LatentAttention::rotated(const Tensor& x) const {
  if (!config_.rope_interleave) return (*rotary_)(x, position());
  const Tensor pairs = reshape(x, {x.size(0), x.size(1), x.size(2), x.size(3) / 2, 2});
  return (*rotary_)(reshape(transpose(pairs, 3, 4), x.shape()), position());
}

/// x with zeros behind its last dim.
static Tensor widened(const Tensor& x, int64_t size) {
  const int64_t missing = size - x.size(3);
  return missing == 0 ? x : pad(x, 3, 0, missing);
}

LatentAttention::Latents LatentAttention::latents_of(const Tensor& latent) {
  return {by_head((*kv_norm_)(slice(latent, 2, 0, config_.kv_lora_rank)), 1),
          rotated(by_head(slice(latent, 2, config_.kv_lora_rank, latent.size(2)), 1))};
}

/// Query [batch, n, heads, width] -> values by head.
Tensor LatentAttention::attend(const Tensor& query, const Latents& latents) {
  const int64_t nope = config_.qk_nope_head_dim, value = config_.v_head_dim;
  const int64_t padded = std::max(nope + config_.qk_rope_head_dim, value);
  const Tensor& keys = latents.keys;
  const Tensor rows = reshape(latents.values, {keys.size(0), keys.size(1), config_.kv_lora_rank});
  const Tensor expanded = by_head((*kv_b_)(rows), config_.heads);
  const Tensor key_of_heads =
      expand(keys, {keys.size(0), keys.size(1), config_.heads, config_.qk_rope_head_dim});
  const Tensor key = cat({slice(expanded, 3, 0, nope), key_of_heads}, 3);
  const Tensor values = slice(expanded, 3, nope, nope + value);
  AttentionOptions options{.scale = config_.scale};
  if (drops_out()) options.dropout = config_.dropout;
  const Tensor y =
      attention(widened(query, padded), widened(key, padded), widened(values, padded), options);
  return padded == value ? y : slice(y, 3, 0, value);
}

Tensor LatentAttention::attended(const Tensor& q, const Tensor& latent) {
  const int64_t nope = config_.qk_nope_head_dim, width = nope + config_.qk_rope_head_dim;
  const Tensor query = cat({slice(q, 3, 0, nope), rotated(slice(q, 3, nope, width))}, 3);
  return attend(query, kept(latents_of(latent)));
}

Tensors LatentAttention::forward(const Tensors& inputs) {
  const Tensor& x = only_input("latent_attention", inputs);
  if (x.ndim() != 3) {
    fail("latent_attention: shape of the input is ", x.shape(),
         ", expected [batch, sequence, dim]");
  }
  const Tensor y = attended(queries(x), (*kv_a_)(x));
  return {(*o_)(reshape(y, {x.size(0), x.size(1), config_.heads * config_.v_head_dim}))};
}

}  // namespace weft
