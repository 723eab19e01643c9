// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <initializer_list>
#include <limits>

#include "nn/families.h"
#include "weft/error.h"

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
  if (c.experts != 0) check_ranges(what, {{"experts", c.experts, 1, kMost}});
  if (c.expert_chunks < 1) fail(what, ": expert chunks must be at least 1, got ", c.expert_chunks);
  if (c.experts == 0 && c.expert_chunks > 1) {
    fail(what, ": expert chunks is ", c.expert_chunks, ", expected 1 of a model without experts");
  }
  if (c.experts == 0) return;
  check_ranges(what, {{"expert ffn", c.expert_ffn, 1, kMost}});
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

}  // namespace weft
