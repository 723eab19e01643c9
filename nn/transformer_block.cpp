// SPDX-License-Identifier: Apache-2.0
#include "nn/transformer_block.h"

#include <cmath>
#include <initializer_list>
#include <limits>

#include "nn/families.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/moe.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/networks.h"
#include "weft/ops/reductions.h"

namespace weft {

/// Models that are larger are taken for a mistake before they take memory and time.
static constexpr double kMostParameters = 1e15;

static double parameters_in(const TransformerConfig& config) {
  const auto dim = static_cast<double>(config.dim), heads = static_cast<double>(config.heads);
  const double width = heads * static_cast<double>(config.head_dim);
  const double shared = width * static_cast<double>(config.kv_heads) / heads;
  const double experts =
      static_cast<double>(config.experts) * static_cast<double>(config.expert_ffn);
  const double ffn = static_cast<double>(config.ffn) + experts;
  const double block = dim * (2 * width + 2 * shared + 3 * ffn + 2);
  const double ends = dim * (static_cast<double>(config.vocabulary) * (config.tied ? 1 : 2) + 1);
  return static_cast<double>(config.layers) * block + ends;
}

/// The largest size and count.
static constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

namespace {

struct Range {
  const char* name;
  int64_t value, least, most;
};

}  // namespace

static void check_ranges(const std::string& what, std::initializer_list<Range> ranges) {
  for (const auto& [name, value, least, most] : ranges) {
    if (value >= least && value <= most) continue;
    fail(what, ": ", name, " is ", value, ", expected ", least, " to ", most);
  }
}

static void check_scaling(const std::string& what, const RopeScaling& scaling, int64_t pairs) {
  using Kind = RopeScalingKind;
  if (scaling.kind == Kind::none) return;
  if (!(scaling.factor > 0) || !std::isfinite(scaling.factor)) {
    fail(what, ": factor of the rope scaling is ", scaling.factor, ", expected a number above 0");
  }
  if (scaling.kind != Kind::linear && scaling.original_max < 1) {
    fail(what, ": original longest sequence of the rope scaling is ", scaling.original_max,
         ", expected at least 1");
  }
  if (scaling.kind == Kind::llama3 && !(scaling.high_frequency > scaling.low_frequency)) {
    fail(what, ": high frequency factor is ", scaling.high_frequency, ", expected more than ",
         scaling.low_frequency, ", the low one");
  }
  for (const auto* factors : {&scaling.short_factor, &scaling.long_factor}) {
    if (scaling.kind != Kind::longrope || factors->size() == static_cast<size_t>(pairs)) continue;
    fail(what, ": number of rope factors is ", factors->size(), ", expected ", pairs,
         ", one for each pair of a head");
  }
}

static void check_rotary(const std::string& what, const TransformerConfig& config) {
  const double fraction = config.rotary_fraction;
  if (!(fraction >= 0) || fraction > 1) {
    fail(what, ": rotary fraction of a head is ", fraction, ", expected 0 to 1");
  }
  if (fraction == 0) return;
  const auto width = static_cast<int64_t>(static_cast<double>(config.head_dim) * fraction);
  if (fraction == 1 && width % 2 != 0) {
    fail(what, ": head dim is ", config.head_dim, ", expected an even number");
  }
  if (width % 2 != 0 || width == 0) {
    fail(what, ": rotated width of a head is ", width, ", expected an even number above 0");
  }
  if (!(config.rope_theta > 0) || !std::isfinite(config.rope_theta)) {
    fail(what, ": rope theta is ", config.rope_theta, ", expected a finite number above 0");
  }
  if (!(config.local_rope_theta >= 0) || !std::isfinite(config.local_rope_theta)) {
    fail(what, ": local rope theta is ", config.local_rope_theta, ", expected at least 0");
  }
  check_scaling(what, config.rope_scaling, width / 2);
}

static void check_experts(const std::string& what, const TransformerConfig& c) {
  if (c.expert_chunks < 1) fail(what, ": expert chunks must be at least 1, got ", c.expert_chunks);
  if (c.experts == 0 && c.expert_chunks > 1) {
    fail(what, ": expert chunks is ", c.expert_chunks, ", expected 1 of a model without experts");
  }
  if (c.experts == 0) return;
  check_ranges(what, {{"experts", c.experts, 1, kMost}, {"expert ffn", c.expert_ffn, 1, kMost}});
  if (c.shared_ffn != 0) check_ranges(what, {{"shared ffn", c.shared_ffn, 1, kMost}});
  if (c.shared_gate && c.shared_ffn == 0) {
    fail(what, ": the gate of the shared expert is set without one, expected its width above 0");
  }
  check_ranges(what, {{"experts of a token", c.experts_per_token, 1, c.experts}});
  if (c.expert_groups < 1 || c.experts % c.expert_groups != 0) {
    fail(what, ": experts is ", c.experts, ", expected a multiple of ", c.expert_groups,
         ", the groups of experts");
  }
  check_ranges(what, {{"groups of a token", c.top_groups, 1, c.expert_groups}});
  const int64_t in_groups = c.experts / c.expert_groups * c.top_groups;
  check_ranges(what, {{"experts of a token", c.experts_per_token, 1, in_groups}});
  if (!c.gated || c.activation != Activation::silu || c.mlp_bias || c.parallel_residual) {
    fail(what, ": feed-forward has experts, expected silu, a gate, no bias and no parallel ",
         "residual");
  }
}

static void check_latents(const std::string& what, const TransformerConfig& c) {
  if (c.kv_lora_rank == 0) return;
  check_ranges(what, {{"kv lora rank", c.kv_lora_rank, 1, kMost},
                      {"nope head dim", c.nope_head_dim, 1, kMost},
                      {"value head dim", c.value_head_dim, 1, kMost},
                      {"q lora rank", c.q_lora_rank, 0, kMost}});
  if (c.kv_heads != c.heads) {
    fail(what, ": kv heads is ", c.kv_heads, ", expected ", c.heads, ", the heads, of latents");
  }
  if (!c.causal || c.window > 0 || c.rotary_fraction != 1 || c.query_norm != QueryNorm::none) {
    fail(what, ": attention is of latents, expected it causal, without a window, and rotated ",
         "whole");
  }
}

void check_config(const std::string& what, const TransformerConfig& c) {
  check_ranges(what, {{"dim", c.dim, 1, kMost},
                      {"layers", c.layers, 1, kMost},
                      {"heads", c.heads, 1, kMost},
                      {"kv heads", c.kv_heads, 1, kMost},
                      {"head dim", c.head_dim, 1, kMost},
                      {"ffn", c.ffn, 1, kMost},
                      {"vocabulary", c.vocabulary, 1, kMost},
                      {"longest sequence", c.max_sequence, 1, kMost},
                      {"layers", c.layers, 1, kMostLayers}});
  if (c.padding) check_ranges(what, {{"padding", *c.padding, 0, c.vocabulary - 1}});
  if (const double count = parameters_in(c); count > kMostParameters) {
    fail(what, ": number of parameters is ", count, ", expected at most ", kMostParameters);
  }
  if (c.heads % c.kv_heads != 0) {
    fail(what, ": heads is ", c.heads, ", expected a multiple of ", c.kv_heads, ", the kv heads");
  }
  check_rotary(what, c);
  if (!(c.norm_eps >= 0)) fail(what, ": norm eps must be at least 0, got ", c.norm_eps);
  if (!(c.deviation >= 0)) {
    fail(what, ": deviation of the initial values must be at least 0, got ", c.deviation);
  }
  for (const auto* flags : {&c.windowed, &c.unrotated, &c.dense}) {
    if (flags->empty() || flags->size() == static_cast<size_t>(c.layers)) continue;
    fail(what, ": number of layer types is ", flags->size(), ", expected ", c.layers,
         ", one a layer");
  }
  if (c.window < 0) fail(what, ": window must be at least 0, got ", c.window);
  for (const double p : {c.embedding_dropout, c.residual_dropout, c.attention_dropout}) {
    if (!(p >= 0 && p < 1)) fail(what, ": dropout is ", p, ", expected one in [0, 1)");
  }
  check_experts(what, c);
  check_latents(what, c);
}

TransformerState::TransformerState(const TransformerConfig& given)
    : config(given),
      rotary(given, given.rope_theta, given.rope_scaling),
      local_rotary(given.local_rope_theta > 0 ? Rotary(given, given.local_rope_theta, {}) : rotary),
      end_block(given.layers) {}

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
    // The mask of tokens that count for the balance of experts.
    if (inputs.size() > 1 && inputs.back() && is_floating(inputs.back().dtype())) {
      auto* experts = dynamic_cast<MoE*>(feed_forward_.get());
      if (experts) experts->count_only(inputs.back());
      attended.pop_back();
    }
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
    const Tensor sum = x + (c.residual_scale == 1 ? y : mul(y, c.residual_scale));
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

Tensors inputs_of(const Tensor& ids, const TransformerLossOptions& options) {
  if (options.order.places) {
    if (options.segments) fail("model: segments are given besides an order, expected one of them");
    return {ids, options.order.segments, options.positions, options.order.places};
  }
  return options.segments ? Tensors{ids, options.segments} : Tensors{ids};
}

Tensor without_padding(const Tensor& targets, const Tensor& places) {
  const NoGrad no_grad;
  const Tensor is_counted = not_equal(targets, kIgnoredTarget);
  if (places) {
    const Tensor behind = mul(add(places, 1), cast(is_counted, places.dtype()));
    return cast(greater(max(behind, {1}, true), places), f32);
  }
  const Tensor counts = cast(is_counted, f32);
  const Tensor before = sub(cumulative_sum(counts, 1), counts);
  return cast(greater(sub(sum(counts, {1}, true), before), 0), f32);
}

}  // namespace weft
