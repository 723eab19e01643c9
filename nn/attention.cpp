// SPDX-License-Identifier: Apache-2.0
#include "weft/latent_attention.h"

#include <algorithm>
#include <cmath>

#include "nn/checks.h"
#include "nn/transformer_block.h"
#include "weft/extend/pattern.h"
#include "weft/ops/documents.h"
#include "weft/ops/factories.h"
#include "weft/ops/indexing.h"
#include "weft/ops/networks.h"
#include "weft/ops/shapes.h"

namespace weft {

AttendedTokens::AttendedTokens(const TransformerConfig& config, const Tensors& inputs) {
  if (inputs.size() > 3) {
    segments = inputs[1], positions = inputs[2], places = inputs[3];
    return;
  }
  if (inputs.size() < 2 || !inputs[1]) return;
  if (inputs[1].dtype() == boolean) {
    mask = inputs[1];
    return;
  }
  if (!config.causal) {
    fail("model: dtype of the mask is ", inputs[1].dtype(),
         ", expected bool; an encoder takes no segments");
  }
  segments = inputs[1];
  positions = inputs.size() > 2 ? inputs[2] : document_positions(segments);
}

/// Repeats the heads of keys k and values v [batch, sequence, kv heads, d] for each query head,
/// where ranks cut the heads of queries q but have all those of k or v.
static void give_each_query_head(const Tensor& q, Tensor& k, Tensor& v) {
  if (!q.is_sharded() || !k.is_sharded() || !v.is_sharded() || k.size(2) == q.size(2)) return;
  Pattern pattern(q.sharding().axes());
  bool shares = false;
  for (const int axis : q.sharding().axes_cutting(2)) {
    const Placement& placement = q.sharding()[axis];
    pattern.set(axis, Shard{0, {placement.sizes().begin(), placement.sizes().end()}});
    shares = shares || !k.sharding()[axis].is_shard(2) || !v.sharding()[axis].is_shard(2);
  }
  if (!shares) return;
  std::vector<int64_t> heads;
  const int64_t group = q.size(2) / k.size(2);
  for (int64_t head = 0; head < q.size(2); ++head) heads.push_back(head / group);
  const DeviceMesh mesh = q.sharding().mesh();
  const Tensor whole = from_values(heads, {q.size(2)}, {i64, k.device(), Sharding(mesh, {})});
  const Tensor of_query = redistributed(whole, Sharding::of(mesh, pattern));
  k = take(k, of_query, 2);
  v = take(v, of_query, 2);
}

Tensor attended_tokens(const TransformerState& state, const Tensor& q, const Tensor& k,
                       const Tensor& v, const AttendedTokens& tokens, AttentionOptions options) {
  if (!tokens.places) {
    options.segments = tokens.segments;
    return attention(q, k, v, options);
  }
  return ordered_attention(q, k, v, {tokens.places, tokens.segments}, options, state.sequence_way);
}

static Tensor rotated_by(Rotary& rotary, const Tensor& x, const TransformerState& state,
                         const Tensor& positions) {
  return positions ? rotary(x, positions) : rotary(x, state.position());
}

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

LatentAttention::LatentAttention(const LatentAttentionConfig& config)
    : LatentAttention(config,
                      std::make_shared<TransformerState>(
                          TransformerConfig{.head_dim = config.qk_rope_head_dim,
                                            .rope_theta = config.rope_theta,
                                            .rope_scaling = config.rope_scaling}),
                      0) {}

LatentAttention::LatentAttention(const LatentAttentionConfig& config,
                                 std::shared_ptr<TransformerState> state, int64_t layer)
    : config_(config), state_(std::move(state)), layer_(layer) {
  check_latent(config);
  config_.scale = scale_of(config);
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

Tensor LatentAttention::queries(const Tensor& x) {
  const Tensor latent = q_a_ ? (*q_norm_)((*q_a_)(x)) : x;
  return by_head((*q_)(latent), config_.heads);
}

/// Rotates x [batch, sequence, heads, qk_rope_head_dim]. Neighbours become pairs (i, i + d / 2), in
/// queries and keys alike.
Tensor LatentAttention::rotated(const Tensor& x, const Tensor& positions) const {
  if (!config_.rope_interleave) return rotated_by(state_->rotary, x, *state_, positions);
  const Tensor pairs = reshape(x, {x.size(0), x.size(1), x.size(2), x.size(3) / 2, 2});
  const Tensor halves = reshape(transpose(pairs, 3, 4), x.shape());
  return rotated_by(state_->rotary, halves, *state_, positions);
}

/// x with zeros behind its last dim.
static Tensor widened(const Tensor& x, int64_t size) {
  const int64_t missing = size - x.size(3);
  return missing == 0 ? x : pad(x, 3, 0, missing);
}

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

/// Adds rows to the two parts of a layer in the cache, if there is one, and returns all rows.
static void keep_rows(KeyValueCache* cache, int64_t layer, Tensor& first, Tensor& second) {
  if (!cache) return;
  auto& [firsts, seconds] = cache->layers[static_cast<size_t>(layer)];
  first = kept_rows(*cache, firsts, first), second = kept_rows(*cache, seconds, second);
}

/// Queries [batch, n, heads, qk_nope_head_dim + qk_rope_head_dim], not rotated, and the output of
/// kv_a_proj_with_mqa -> values by head.
Tensor LatentAttention::attended(const Tensor& q, const Tensor& latent,
                                 const AttendedTokens& tokens) {
  const Tensor& positions = tokens.positions;
  const int64_t nope = config_.qk_nope_head_dim, value = config_.v_head_dim;
  const int64_t rank = config_.kv_lora_rank, width = nope + config_.qk_rope_head_dim;
  const Tensor query = cat({slice(q, 3, 0, nope), rotated(slice(q, 3, nope, width), positions)}, 3);
  Tensor latents = by_head((*kv_norm_)(slice(latent, 2, 0, rank)), 1);
  // All heads share the rotated keys.
  Tensor keys = rotated(by_head(slice(latent, 2, rank, latent.size(2)), 1), positions);
  keep_rows(state_->cache, layer_, latents, keys);
  const Tensor rows = reshape(latents, {keys.size(0), keys.size(1), rank});
  const Tensor expanded = by_head((*kv_b_)(rows), config_.heads);
  const Tensor key_of_heads =
      expand(keys, {keys.size(0), keys.size(1), config_.heads, config_.qk_rope_head_dim});
  const Tensor key = cat({slice(expanded, 3, 0, nope), key_of_heads}, 3);
  const Tensor values = slice(expanded, 3, nope, nope + value);
  AttentionOptions options{.scale = config_.scale};
  if (is_training() && !state_->cache) options.dropout = config_.dropout;
  const int64_t padded = std::max(width, value);
  const Tensor y = attended_tokens(*state_, widened(query, padded), widened(key, padded),
                                   widened(values, padded), tokens, options);
  return padded == value ? y : slice(y, 3, 0, value);
}

Tensors LatentAttention::forward(const Tensors& inputs) {
  if (inputs.empty() || inputs.size() > 4) {
    fail("latent_attention: number of inputs is ", inputs.size(),
         ", expected 1, or up to 4: x, segments, positions, places");
  }
  const Tensor& x = inputs[0];
  const AttendedTokens tokens(state_->config, inputs);
  if (tokens.mask) {
    fail("latent_attention: dtype of segments is bool, expected integers; it takes no mask");
  }
  if (x.ndim() != 3) {
    fail("latent_attention: shape of the input is ", x.shape(),
         ", expected [batch, sequence, dim]");
  }
  const Tensor latent = (*kv_a_)(x);
  const Tensor y = state_->by_rows({queries(x), latent}, [&](const Tensors& rows) {
    return attended(rows[0], rows[1], tokens);
  });
  return {(*o_)(reshape(y, {x.size(0), x.size(1), config_.heads * config_.v_head_dim}))};
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
    const AttendedTokens tokens(state_->config, inputs);
    const Tensor y = state_->by_rows({q, k, by_heads((*v_proj_)(x))}, [&](const Tensors& rows) {
      return attend(rotated(rows[0], tokens.positions), rotated(rows[1], tokens.positions), rows[2],
                    tokens);
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

  Tensor rotated(const Tensor& x, const Tensor& positions) const {
    if (!state_->config.rotates(layer_)) return x;
    Rotary& rotary = state_->config.has_window(layer_) ? state_->local_rotary : state_->rotary;
    return rotated_by(rotary, x, *state_, positions);
  }

  Tensor attend(const Tensor& q, Tensor k, Tensor v, const AttendedTokens& tokens) const {
    const TransformerConfig& c = state_->config;
    AttentionOptions options{
        .causal = c.causal, .scale = c.attention_scale, .softcap = c.attention_softcap};
    if (c.has_window(layer_)) options.window = c.window;
    if (c.sinks) options.sinks = used(0);
    const Tensor& mask = tokens.mask;
    if (mask) options.mask = reshape(mask, {mask.size(0), 1, 1, mask.size(1)});
    if (is_training() && !state_->cache) options.dropout = c.attention_dropout;
    keep_rows(state_->cache, layer_, k, v);
    give_each_query_head(q, k, v);
    return attended_tokens(*state_, q, k, v, tokens, options);
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

}  // namespace

std::shared_ptr<Module> make_attention(const std::shared_ptr<TransformerState>& state,
                                       int64_t layer) {
  if (state->config.kv_lora_rank > 0) {
    return std::make_shared<LatentAttention>(latent_config(state->config), state, layer);
  }
  return std::make_shared<SelfAttention>(state, layer);
}

}  // namespace weft
