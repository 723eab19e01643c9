// SPDX-License-Identifier: Apache-2.0
#include "nn/transformer_block.h"

#include "weft/layers.h"
#include "weft/moe.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/networks.h"

namespace weft {

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
