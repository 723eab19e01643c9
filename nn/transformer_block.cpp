// SPDX-License-Identifier: Apache-2.0
#include "nn/transformer_block.h"

#include "weft/layers.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/networks.h"
#include "weft/ops/shapes.h"

namespace weft {

namespace {

/// Causal grouped-query attention with rope.
class SelfAttention final : public Module {
 public:
  explicit SelfAttention(const TransformerConfig& config)
      : head_dim_(config.head_dim), rope_theta_(config.rope_theta) {
    const int64_t width = config.heads * head_dim_, kv_width = config.kv_heads * head_dim_;
    q_proj_ = add_linear("q_proj", config.dim, width, config);
    k_proj_ = add_linear("k_proj", config.dim, kv_width, config);
    v_proj_ = add_linear("v_proj", config.dim, kv_width, config);
    o_proj_ = add_linear("o_proj", width, config.dim, config);
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    const Tensor& x = inputs[0];
    const Tensor q = rope(by_heads((*q_proj_)(x)), rope_theta_);
    const Tensor k = rope(by_heads((*k_proj_)(x)), rope_theta_);
    const Tensor y = attention(q, k, by_heads((*v_proj_)(x)));
    return {(*o_proj_)(reshape(y, {y.size(0), y.size(1), y.size(2) * y.size(3)}))};
  }

 private:
  std::shared_ptr<Module> add_linear(const char* name, int64_t in, int64_t out,
                                     const TransformerConfig& config) {
    return add(name, std::make_shared<Linear>(in, out, false, config.deviation));
  }
  /// Returns [batch, sequence, heads * d] as [batch, sequence, heads, d].
  Tensor by_heads(const Tensor& x) const {
    return reshape(x, {x.size(0), x.size(1), x.size(2) / head_dim_, head_dim_});
  }

  int64_t head_dim_;
  double rope_theta_;
  std::shared_ptr<Module> q_proj_, k_proj_, v_proj_, o_proj_;
};

/// The gated feed-forward: down(silu(gate x) * up x).
class FeedForward final : public Module {
 public:
  explicit FeedForward(const TransformerConfig& config) {
    gate_ =
        add("gate_proj", std::make_shared<Linear>(config.dim, config.ffn, false, config.deviation));
    up_ = add("up_proj", std::make_shared<Linear>(config.dim, config.ffn, false, config.deviation));
    down_ =
        add("down_proj", std::make_shared<Linear>(config.ffn, config.dim, false, config.deviation));
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    return {(*down_)(swiglu((*gate_)(inputs[0]), (*up_)(inputs[0])))};
  }

 private:
  std::shared_ptr<Module> gate_, up_, down_;
};

class TransformerBlock final : public Module {
 public:
  explicit TransformerBlock(const TransformerConfig& config) {
    attention_ = add("self_attn", std::make_shared<SelfAttention>(config));
    feed_forward_ = add("mlp", std::make_shared<FeedForward>(config));
    attention_norm_ =
        add("input_layernorm", std::make_shared<RMSNorm>(config.dim, config.norm_eps));
    feed_forward_norm_ =
        add("post_attention_layernorm", std::make_shared<RMSNorm>(config.dim, config.norm_eps));
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    const Tensor x = inputs[0] + (*attention_)((*attention_norm_)(inputs[0]));
    return {x + (*feed_forward_)((*feed_forward_norm_)(x))};
  }

 private:
  std::shared_ptr<Module> attention_, feed_forward_, attention_norm_, feed_forward_norm_;
};

}  // namespace

std::shared_ptr<Module> make_transformer_block(const TransformerConfig& config) {
  return std::make_shared<TransformerBlock>(config);
}

}  // namespace weft
