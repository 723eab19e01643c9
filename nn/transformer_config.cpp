// SPDX-License-Identifier: Apache-2.0
#include <cmath>
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

static std::string mistake_in_scaling(const RopeScaling& scaling, int64_t pairs) {
  using Kind = RopeScalingKind;
  if (scaling.kind == Kind::none) return "";
  if (!(scaling.factor > 0) || !std::isfinite(scaling.factor)) {
    return concat("factor of the rope scaling is ", scaling.factor, ", expected a number above 0");
  }
  if (scaling.kind != Kind::linear && scaling.original_max < 1) {
    return concat("original longest sequence of the rope scaling is ", scaling.original_max,
                  ", expected at least 1");
  }
  if (scaling.kind == Kind::llama3 && !(scaling.high_frequency > scaling.low_frequency)) {
    return concat("high frequency factor is ", scaling.high_frequency, ", expected more than ",
                  scaling.low_frequency, ", the low one");
  }
  for (const auto* factors : {&scaling.short_factor, &scaling.long_factor}) {
    if (scaling.kind != Kind::longrope || factors->size() == static_cast<size_t>(pairs)) continue;
    return concat("number of rope factors is ", factors->size(), ", expected ", pairs,
                  ", one for each pair of a head");
  }
  return "";
}

static std::string mistake_in_rotary(const TransformerConfig& config) {
  const double fraction = config.rotary_fraction;
  if (!(fraction >= 0) || fraction > 1) {
    return concat("rotary fraction of a head is ", fraction, ", expected 0 to 1");
  }
  if (fraction == 0) return "";
  const auto width = static_cast<int64_t>(static_cast<double>(config.head_dim) * fraction);
  if (fraction == 1 && width % 2 != 0) {
    return concat("head dim is ", config.head_dim, ", expected an even number");
  }
  if (width % 2 != 0 || width == 0) {
    return concat("rotated width of a head is ", width, ", expected an even number above 0");
  }
  if (!(config.rope_theta > 0) || !std::isfinite(config.rope_theta)) {
    return concat("rope theta is ", config.rope_theta, ", expected a finite number above 0");
  }
  if (!(config.local_rope_theta >= 0) || !std::isfinite(config.local_rope_theta)) {
    return concat("local rope theta is ", config.local_rope_theta, ", expected at least 0");
  }
  return mistake_in_scaling(config.rope_scaling, width / 2);
}

static std::string mistake_in_experts(const TransformerConfig& c) {
  const auto out_of = [](const char* name, int64_t value, int64_t most) {
    return concat(name, " is ", value, ", expected 1 to ", most);
  };
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (c.experts < 0 || c.experts > kMost) return out_of("experts", c.experts, kMost);
  if (c.expert_chunks < 1) {
    return concat("expert chunks must be at least 1, got ", c.expert_chunks);
  }
  if (c.experts == 0 && c.expert_chunks > 1) {
    return concat("expert chunks is ", c.expert_chunks, ", expected 1 of a model without experts");
  }
  if (c.experts == 0) return "";
  if (c.expert_ffn < 1 || c.expert_ffn > kMost) return out_of("expert ffn", c.expert_ffn, kMost);
  if (c.shared_ffn < 0 || c.shared_ffn > kMost) return out_of("shared ffn", c.shared_ffn, kMost);
  if (c.shared_gate && c.shared_ffn == 0) {
    return "the gate of the shared expert is set without one, expected its width above 0";
  }
  if (c.experts_per_token < 1 || c.experts_per_token > c.experts) {
    return out_of("experts of a token", c.experts_per_token, c.experts);
  }
  if (c.expert_groups < 1 || c.experts % c.expert_groups != 0) {
    return concat("experts is ", c.experts, ", expected a multiple of ", c.expert_groups,
                  ", the groups of experts");
  }
  if (c.top_groups < 1 || c.top_groups > c.expert_groups) {
    return out_of("groups of a token", c.top_groups, c.expert_groups);
  }
  if (c.experts_per_token > c.experts / c.expert_groups * c.top_groups) {
    return out_of("experts of a token", c.experts_per_token,
                  c.experts / c.expert_groups * c.top_groups);
  }
  if (!c.gated || c.activation != Activation::silu || c.mlp_bias || c.parallel_residual) {
    return "feed-forward has experts, expected silu, a gate, no bias and no parallel residual";
  }
  return "";
}

static std::string mistake_in_latents(const TransformerConfig& c) {
  if (c.kv_lora_rank == 0) return "";
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const std::pair<const char*, int64_t> sizes[] = {{"kv lora rank", c.kv_lora_rank},
                                                   {"nope head dim", c.nope_head_dim},
                                                   {"value head dim", c.value_head_dim}};
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > kMost) return concat(name, " is ", size, ", expected 1 to ", kMost);
  }
  if (c.q_lora_rank < 0 || c.q_lora_rank > kMost) {
    return concat("q lora rank is ", c.q_lora_rank, ", expected 0 to ", kMost);
  }
  if (c.kv_heads != c.heads) {
    return concat("kv heads is ", c.kv_heads, ", expected ", c.heads, ", the heads, of latents");
  }
  if (!c.causal || c.window > 0 || c.rotary_fraction != 1 || c.query_norm != QueryNorm::none) {
    return "attention is of latents, expected it causal, without a window, and rotated whole";
  }
  return "";
}

static std::string mistake_in_choices(const TransformerConfig& config) {
  for (const auto* flags : {&config.windowed, &config.unrotated, &config.dense}) {
    if (flags->empty() || flags->size() == static_cast<size_t>(config.layers)) continue;
    return concat("number of layer types is ", flags->size(), ", expected ", config.layers,
                  ", one a layer");
  }
  if (config.window < 0) return concat("window must be at least 0, got ", config.window);
  for (const double p :
       {config.embedding_dropout, config.residual_dropout, config.attention_dropout}) {
    if (!(p >= 0 && p < 1)) return concat("dropout is ", p, ", expected one in [0, 1)");
  }
  if (const std::string mistake = mistake_in_experts(config); !mistake.empty()) return mistake;
  return mistake_in_latents(config);
}

std::string mistake_in(const TransformerConfig& config) {
  const std::pair<const char*, int64_t> sizes[] = {{"dim", config.dim},
                                                   {"layers", config.layers},
                                                   {"heads", config.heads},
                                                   {"kv heads", config.kv_heads},
                                                   {"head dim", config.head_dim},
                                                   {"ffn", config.ffn},
                                                   {"vocabulary", config.vocabulary},
                                                   {"longest sequence", config.max_sequence}};
  for (const auto& [name, size] : sizes) {
    if (size > 0 && size <= std::numeric_limits<int32_t>::max()) continue;
    return concat(name, " is ", size, ", expected 1 to 2147483647");
  }
  if (config.layers > kMostLayers) {
    return concat("layers is ", config.layers, ", expected 1 to ", kMostLayers);
  }
  if (const double count = parameters_in(config); count > kMostParameters) {
    return concat("number of parameters is ", count, ", expected at most ", kMostParameters);
  }
  if (config.heads % config.kv_heads != 0) {
    return concat("heads is ", config.heads, ", expected a multiple of ", config.kv_heads,
                  ", the kv heads");
  }
  if (const std::string mistake = mistake_in_rotary(config); !mistake.empty()) return mistake;
  if (!(config.norm_eps >= 0)) return concat("norm eps must be at least 0, got ", config.norm_eps);
  if (!(config.deviation >= 0)) {
    return concat("deviation of the initial values must be at least 0, got ", config.deviation);
  }
  return mistake_in_choices(config);
}

}  // namespace weft
