// SPDX-License-Identifier: Apache-2.0
#include "nn/transformer_block.h"
#include "weft/latent_attention.h"
#include "weft/layers.h"
#include "weft/ops/attention.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"
#include "weft/ops/shapes.h"

namespace weft {

namespace {

class SelfAttention final : public Module {
 public:
  SelfAttention(std::shared_ptr<TransformerState> state, int64_t layer)
      : state_(std::move(state)), layer_(layer) {
    const TransformerConfig& c = state_->config;
    const int64_t width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
    q_proj_ = add("q_proj", make_linear(c, c.dim, width, c.qkv_bias));
    k_proj_ = add("k_proj", make_linear(c, c.dim, kv_width, c.qkv_bias));
    v_proj_ = add("v_proj", make_linear(c, c.dim, kv_width, c.qkv_bias));
    o_proj_ = add("o_proj", make_linear(c, width, c.dim, c.output_bias));
    if (c.sinks) declare("sinks", {c.heads}, normal_values(c.deviation));
    if (c.query_norm == QueryNorm::none) return;
    const bool by_head = c.query_norm == QueryNorm::head;
    q_norm_ = add("q_norm", make_norm(c, by_head ? c.head_dim : width));
    k_norm_ = add("k_norm", make_norm(c, by_head ? c.head_dim : kv_width));
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    const Tensor& x = inputs[0];
    const Tensor q = prepared((*q_proj_)(x), q_norm_), k = prepared((*k_proj_)(x), k_norm_);
    const Tensor mask = inputs.size() > 1 ? inputs[1] : Tensor();
    const Tensor y = state_->by_rows({q, k, by_heads((*v_proj_)(x))}, [&](const Tensors& rows) {
      return attend(rotated(rows[0]), rotated(rows[1]), rows[2], mask);
    });
    return {(*o_proj_)(reshape(y, {y.size(0), y.size(1), y.size(2) * y.size(3)}))};
  }

 private:
  /// Returns [batch, sequence, heads * d] as [batch, sequence, heads, d].
  Tensor by_heads(const Tensor& x) const {
    const int64_t d = state_->config.head_dim;
    return reshape(x, {x.size(0), x.size(1), x.size(2) / d, d});
  }

  /// Returns queries or keys by heads, normalised.
  Tensor prepared(const Tensor& x, const std::shared_ptr<Module>& norm) const {
    const QueryNorm kind = state_->config.query_norm;
    const Tensor y = by_heads(kind == QueryNorm::width ? (*norm)(x) : x);
    return kind == QueryNorm::head ? (*norm)(y) : y;
  }

  Tensor rotated(const Tensor& x) const {
    if (!state_->rotates(layer_)) return x;
    Rotary& rotary = state_->has_window(layer_) ? state_->local_rotary : state_->rotary;
    return rotary(x, state_->cache ? state_->cache->position : 0);
  }

  Tensor attend(const Tensor& q, Tensor k, Tensor v, const Tensor& mask) const {
    const TransformerConfig& c = state_->config;
    AttentionOptions options{
        .causal = c.causal, .scale = c.attention_scale, .softcap = c.attention_softcap};
    if (state_->has_window(layer_)) options.window = c.window;
    if (c.sinks) options.sinks = used(0);
    if (mask) options.mask = reshape(mask, {mask.size(0), 1, 1, mask.size(1)});
    if (is_training() && !state_->cache) options.dropout = c.attention_dropout;
    if (state_->cache) {
      auto& [keys, values] = state_->cache->layers[static_cast<size_t>(layer_)];
      k = kept_rows(*state_->cache, keys, k), v = kept_rows(*state_->cache, values, v);
    }
    return attention(q, k, v, options);
  }

  std::shared_ptr<TransformerState> state_;
  int64_t layer_;
  std::shared_ptr<Module> q_proj_, k_proj_, v_proj_, o_proj_, q_norm_, k_norm_;
};

LatentAttentionConfig latent_config(const TransformerConfig& c) {
  return {.dim = c.dim,
          .heads = c.heads,
          .q_lora_rank = c.q_lora_rank,
          .kv_lora_rank = c.kv_lora_rank,
          .qk_nope_head_dim = c.nope_head_dim,
          .qk_rope_head_dim = c.head_dim,
          .v_head_dim = c.value_head_dim,
          .rope_theta = c.rope_theta,
          .rope_scaling = c.rope_scaling,
          .rope_interleave = c.rope_interleave,
          .bias = c.output_bias,
          .dropout = c.attention_dropout,
          .deviation = c.deviation};
}

/// Latent attention that keeps the latents and the rotated keys of the tokens that it has seen.
class CachedLatentAttention final : public LatentAttention {
 public:
  CachedLatentAttention(std::shared_ptr<TransformerState> state, int64_t layer)
      : LatentAttention(latent_config(state->config)), state_(std::move(state)), layer_(layer) {}

 protected:
  int64_t position() const override { return state_->cache ? state_->cache->position : 0; }
  bool drops_out() const override { return is_training() && !state_->cache; }
  Tensor attended(const Tensor& q, const Tensor& latent) override {
    return state_->by_rows({q, latent}, [&](const Tensors& rows) {
      return LatentAttention::attended(rows[0], rows[1]);
    });
  }
  Latents kept(const Latents& latents) override {
    if (!state_->cache) return latents;
    auto& [first, second] = state_->cache->layers[static_cast<size_t>(layer_)];
    return {kept_rows(*state_->cache, first, latents.values),
            kept_rows(*state_->cache, second, latents.keys)};
  }

 private:
  std::shared_ptr<TransformerState> state_;
  int64_t layer_;
};

}  // namespace

/// The rows as a cache has them: heads and batch may be cut, tokens and elements are not.
static Tensor laid_out_for_cache(const Tensor& rows) {
  if (!rows.is_sharded()) return rows;
  std::vector<Placement> placements;
  for (int axis = 0; axis < rows.sharding().mesh().ndim(); ++axis) {
    const Placement& now = rows.sharding()[axis];
    const bool stays = now == Placement(Shard(0)) || now == Placement(Shard(2));
    placements.push_back(stays ? now : Placement(Replicate()));
  }
  return rows.redistribute(Placements(std::span<const Placement>(placements)));
}

Tensor kept_rows(const KeyValueCache& cache, Tensor& part, const Tensor& computed) {
  const Tensor rows = laid_out_for_cache(computed);
  if (!part) {
    part = zeros({rows.size(0), cache.context, rows.size(2), rows.size(3)},
                 {.dtype = rows.dtype(), .device = rows.device(), .sharding = rows.sharding()});
  }
  const int64_t end = cache.position + rows.size(1);
  copy_(slice(part, 1, cache.position, end), rows);
  return slice(part, 1, 0, end);
}

std::shared_ptr<Module> make_attention(const std::shared_ptr<TransformerState>& state,
                                       int64_t layer) {
  if (state->config.kv_lora_rank > 0) return std::make_shared<CachedLatentAttention>(state, layer);
  return std::make_shared<SelfAttention>(state, layer);
}

}  // namespace weft
