// SPDX-License-Identifier: Apache-2.0
#include "nn/transformer_block.h"

#include "weft/latent_attention.h"
#include "weft/layers.h"
#include "weft/moe.h"
#include "weft/ops/attention.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"
#include "weft/ops/networks.h"
#include "weft/ops/shapes.h"

namespace weft {

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

/// Writes the computed rows [batch, n, heads, d] behind those of a part of the cache, which is made
/// like the first of them. Returns all rows.
static Tensor kept_rows(const KeyValueCache& cache, Tensor& part, const Tensor& computed) {
  const Tensor rows = laid_out_for_cache(computed);
  if (!part) {
    part = zeros({rows.size(0), cache.context, rows.size(2), rows.size(3)},
                 {.dtype = rows.dtype(), .device = rows.device(), .sharding = rows.sharding()});
  }
  const int64_t end = cache.position + rows.size(1);
  copy_(slice(part, 1, cache.position, end), rows);
  return slice(part, 1, 0, end);
}

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
  /// Returns heads, of queries or of keys and values.
  Tensor by_heads(const Tensor& x) const { return by_head(x, x.size(2) / state_->config.head_dim); }

  /// Returns queries or keys by heads, normalised.
  Tensor prepared(const Tensor& x, const std::shared_ptr<Module>& norm) const {
    const QueryNorm kind = state_->config.query_norm;
    const Tensor y = by_heads(kind == QueryNorm::width ? (*norm)(x) : x);
    return kind == QueryNorm::head ? (*norm)(y) : y;
  }

  Tensor rotated(const Tensor& x) const {
    if (!state_->config.rotates(layer_)) return x;
    Rotary& rotary = state_->config.has_window(layer_) ? state_->local_rotary : state_->rotary;
    return rotary(x, state_->cache ? state_->cache->position : 0);
  }

  Tensor attend(const Tensor& q, Tensor k, Tensor v, const Tensor& mask) const {
    const TransformerConfig& c = state_->config;
    AttentionOptions options{
        .causal = c.causal, .scale = c.attention_scale, .softcap = c.attention_softcap};
    if (c.has_window(layer_)) options.window = c.window;
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

/// Makes the attention of layer `layer`: {[batch, sequence, dim], mask} -> [batch, sequence, dim].
static std::shared_ptr<Module> make_attention(const std::shared_ptr<TransformerState>& state,
                                              int64_t layer) {
  if (state->config.kv_lora_rank > 0) return std::make_shared<CachedLatentAttention>(state, layer);
  return std::make_shared<SelfAttention>(state, layer);
}

TransformerState::TransformerState(const TransformerConfig& given)
    : config(given),
      rotary(given, given.rope_theta, given.rope_scaling),
      local_rotary(given.local_rope_theta > 0 ? Rotary(given, given.local_rope_theta, {})
                                              : rotary) {}

namespace {

/// rms_norm with 1 + weight, which begins as zeros. The sum is at least an f32.
class RMSNormPlusOne final : public Module {
 public:
  RMSNormPlusOne(int64_t dim, double eps) : eps_(eps) {
    declare("weight", {dim}, constant_values(0));
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    const Tensor& x = inputs[0];
    return {rms_norm(x, cast(used(0), x.dtype() == f64 ? f64 : f32) + 1, eps_)};
  }

 private:
  double eps_;
};

MoEConfig moe_config(const TransformerConfig& c) {
  MoEConfig config{.dim = c.dim, .width = c.expert_ffn, .experts = c.experts};
  config.router = {.top_k = c.experts_per_token,
                   .normalize = c.normalized_weights,
                   .scale = c.routed_scale,
                   .groups = c.expert_groups,
                   .top_groups = c.top_groups};
  config.f32_logits = c.f32_router;
  if (c.sigmoid_router) {
    config.router.scores = RouterOptions::Scores::sigmoid;
    config.router.group_score = RouterOptions::GroupScore::best_two;
    config.balance_bias = true;
  }
  config.shared_width = c.shared_ffn, config.shared_gate = c.shared_gate;
  if (c.shared_gate) config.shared_name = "shared_expert";
  config.returns_balance = c.balance_loss;
  config.deviation = c.deviation;
  config.chunks = c.expert_chunks;
  return config;
}

Tensor multiplied(const Tensor& x, double factor) { return factor == 1 ? x : mul(x, factor); }

/// down(activation(gate x) * up x), or without a gate down(activation(up x)).
class FeedForward final : public Module {
 public:
  FeedForward(const TransformerConfig& c, std::optional<double> deviation)
      : activation_(c.activation) {
    const auto linear_of = [&](int64_t in, int64_t out) {
      return std::make_shared<Linear>(in, out, c.mlp_bias, deviation);
    };
    if (c.gated) gate_ = add("gate_proj", linear_of(c.dim, c.ffn));
    up_ = add("up_proj", linear_of(c.dim, c.ffn));
    down_ = add("down_proj", linear_of(c.ffn, c.dim));
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    const Tensor& x = inputs[0];
    if (!gate_) return {(*down_)(activated(activation_, (*up_)(x)))};
    const Tensor gate = (*gate_)(x), up = (*up_)(x);
    return {(*down_)(activation_ == Activation::silu ? swiglu(gate, up)
                                                     : mul(activated(activation_, gate), up))};
  }

 private:
  Activation activation_;
  std::shared_ptr<Module> gate_, up_, down_;
};

class TransformerBlock final : public Module {
 public:
  TransformerBlock(const std::shared_ptr<TransformerState>& state, int64_t layer) : state_(state) {
    const TransformerConfig& c = state->config;
    attention_ = add("self_attn", make_attention(state, layer));
    feed_forward_ = add("mlp", c.is_sparse(layer) ? std::make_shared<MoE>(moe_config(c))
                                                  : make_feed_forward(c, c.deviation));
    const auto norm = [&](const char* name) { return add(name, make_norm(c, c.dim)); };
    const bool both = c.norm_place == NormPlace::both;
    if (both || c.norm_place == NormPlace::before) {
      if (layer > 0 || c.first_norm) before_attention_ = norm("input_layernorm");
      if (both) after_attention_ = norm("post_attention_layernorm");
      before_mlp_ = norm(both ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    } else {
      after_attention_ = norm("post_attention_layernorm");
    }
    if (c.norm_place != NormPlace::before) after_mlp_ = norm("post_feedforward_layernorm");
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    const Tensor& x = inputs[0];
    Tensors attended = inputs;
    attended[0] = normalised(before_attention_, x);
    const Tensor a = (*attention_)(attended)[0];
    if (state_->config.parallel_residual) {
      return {x + dropped(a) + dropped((*feed_forward_)(normalised(before_mlp_, x)))};
    }
    const Tensor y = added(x, a, after_attention_);
    Tensors computed = (*feed_forward_)(Tensors{normalised(before_mlp_, y)});
    computed[0] = added(y, computed[0], after_mlp_);
    return computed;
  }

 private:
  static Tensor normalised(const std::shared_ptr<Module>& norm, const Tensor& x) {
    return norm ? (*norm)(x) : x;
  }
  Tensor dropped(const Tensor& x) const {
    const double p = state_->config.residual_dropout;
    return p > 0 && is_training() && !state_->cache ? dropout(x, p) : x;
  }
  /// Adds the output of attention or feed-forward to its input.
  Tensor added(const Tensor& x, const Tensor& output, const std::shared_ptr<Module>& norm) const {
    const TransformerConfig& c = state_->config;
    const bool of_sum = c.norm_place == NormPlace::after_sum;
    const Tensor y = dropped(of_sum ? output : normalised(norm, output));
    const Tensor sum = x + multiplied(y, c.residual_scale);
    return of_sum ? (*norm)(sum) : sum;
  }

  std::shared_ptr<TransformerState> state_;
  std::shared_ptr<Module> attention_, feed_forward_;
  std::shared_ptr<Module> before_attention_, after_attention_, before_mlp_, after_mlp_;
};

}  // namespace

Tensor activated(Activation activation, const Tensor& x) {
  switch (activation) {
    case Activation::gelu: return gelu(x);
    case Activation::gelu_tanh: return gelu_tanh(x);
    case Activation::relu: return relu(x);
    default: return silu(x);
  }
}

std::shared_ptr<Module> make_norm(const TransformerConfig& c, int64_t dim) {
  if (c.norm == NormKind::layer) {
    return std::make_shared<LayerNorm>(dim, c.norm_eps, true, c.norm_bias);
  }
  if (c.norm == NormKind::rms_plus_one) return std::make_shared<RMSNormPlusOne>(dim, c.norm_eps);
  return std::make_shared<RMSNorm>(dim, c.norm_eps);
}

std::shared_ptr<Module> make_feed_forward(const TransformerConfig& c,
                                          std::optional<double> deviation) {
  return std::make_shared<FeedForward>(c, deviation);
}

std::shared_ptr<Module> make_transformer_block(const std::shared_ptr<TransformerState>& state,
                                               int64_t layer) {
  return std::make_shared<TransformerBlock>(state, layer);
}

}  // namespace weft
