// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "nn/families.h"

namespace weft::families {

static bool has_qwen_window(const ConfigFile& file, int64_t layer) {
  return layer >= file.integer("max_window_layers", 28);
}

/// "sliding_window" exists even if unused.
static void complete_qwen(const ConfigFile& file, C& c) {
  if (!file.flag("use_sliding_window", false)) c.window = 0;
}

static void write_use_of_window(const C& c, nlohmann::ordered_json& json) {
  json["use_sliding_window"] = c.window > 0;
}

/// Every fourth layer does not rotate, unless there is a list.
static void complete_smollm3(const ConfigFile& file, C& c) {
  complete_qwen(file, c);
  const nlohmann::json flags = file.list("no_rope_layers");
  const int64_t interval = file.integer("no_rope_layer_interval", 4);
  c.unrotated.clear();
  for (int64_t i = 0; i < c.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool listed = at < flags.size() && flags[at].is_number_integer();
    if (!flags.empty() && !listed) {
      file.mistake("\"no_rope_layers\" has ", flags.size(), " integers, expected ", c.layers,
                   ", one a layer");
    }
    if (interval == 0) file.mistake("\"no_rope_layer_interval\" must be at least 1, got 0");
    c.unrotated.push_back(listed ? flags[at] == 0 : (i + 1) % interval == 0);
  }
}

/// Layers without rotation have the window.
static bool has_smollm3_window(const ConfigFile& file, int64_t layer) {
  const nlohmann::json flags = file.list("no_rope_layers");
  if (!flags.empty()) return flags.at(static_cast<size_t>(layer)) == 0;
  return (layer + 1) % file.integer("no_rope_layer_interval", 4) == 0;
}

static void write_smollm3(const C& c, nlohmann::ordered_json& json) {
  write_use_of_window(c, json);
  json["no_rope_layers"] = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < c.layers; ++i) {
    const bool rotates = c.unrotated.empty() || !c.unrotated[static_cast<size_t>(i)];
    json["no_rope_layers"].push_back(rotates ? 1 : 0);
  }
}

std::vector<Family> llamas() {
  const C d = llama_defaults();
  C mistral = d, qwen2 = d, qwen3 = d, granite = d, smollm3 = d, phi3 = d, olmo2 = d;
  mistral.kv_heads = 8, mistral.max_sequence = 4096 * 32, mistral.window = 4096;
  qwen2.kv_heads = 32, qwen2.max_sequence = 32768, qwen2.window = 4096, qwen2.qkv_bias = true;
  qwen3 = qwen2;
  qwen3.qkv_bias = false, qwen3.query_norm = QueryNorm::head, qwen3.head_dim = 128;
  granite.attention_scale = 1;
  smollm3.kv_heads = 4, smollm3.max_sequence = 32768, smollm3.rope_theta = 2e6, smollm3.tied = true;
  phi3.max_sequence = phi3.rope_scaling.original_max = 4096, phi3.norm_eps = 1e-5;
  olmo2.norm_eps = 1e-5, olmo2.query_norm = QueryNorm::width, olmo2.norm_place = NormPlace::after;
  const Keys biased = with(llama_like(), attention_bias());
  const Keys both_biased = with(biased, {mlp_bias()});
  return {
      {.type = "llama",
       .architecture = "LlamaForCausalLM",
       .defaults = d,
       .keys = both_biased,
       .fixed = {{"rope_interleaved", false}}},
      {.type = "mistral",
       .architecture = "MistralForCausalLM",
       .defaults = mistral,
       .keys = with(llama_like(), {window()})},
      {.type = "qwen2",
       .architecture = "Qwen2ForCausalLM",
       .defaults = qwen2,
       .keys = with(llama_like(), {window()}),
       .fixed = {{"use_mrope", false}},
       .is_windowed = has_qwen_window,
       .complete = complete_qwen,
       .write = write_use_of_window},
      {.type = "qwen3",
       .architecture = "Qwen3ForCausalLM",
       .defaults = qwen3,
       .keys = with(biased, {window()}),
       .is_windowed = has_qwen_window,
       .complete = complete_qwen,
       .write = write_use_of_window},
      {.type = "smollm3",
       .architecture = "SmolLM3ForCausalLM",
       .defaults = smollm3,
       .keys = with(both_biased, {window()}),
       .is_windowed = has_smollm3_window,
       .complete = complete_smollm3,
       .write = write_smollm3},
      {.type = "granite",
       .architecture = "GraniteForCausalLM",
       .defaults = granite,
       .keys = with(both_biased, {{"embedding_multiplier", &C::embedding_scale},
                                  {"logits_scaling", &C::logit_divisor},
                                  {"residual_multiplier", &C::residual_scale},
                                  {"attention_multiplier", &C::attention_scale}})},
      {.type = "olmo2", .architecture = "Olmo2ForCausalLM", .defaults = olmo2, .keys = biased},
      {.type = "phi3",
       .architecture = "Phi3ForCausalLM",
       .defaults = phi3,
       .keys = with(llama_like(), {window(),
                                   {"partial_rotary_factor", &C::rotary_fraction},
                                   {"resid_pdrop", &C::residual_dropout},
                                   {"embd_pdrop", &C::embedding_dropout}}),
       .names = fused("self_attn.qkv_proj", "mlp.gate_up_proj")},
  };
}

static void scale_by_width(C& c) { c.embedding_scale = std::sqrt(static_cast<double>(c.dim)); }

static void complete_gemma(const ConfigFile&, C& c) {
  // The first files say "gelu" and mean its approximation; transformers reads it so as well.
  if (c.activation == Activation::gelu) c.activation = Activation::gelu_tanh;
  scale_by_width(c);
}

static void complete_scaled_gemma(const ConfigFile& file, C& c) {
  scale_by_width(c);
  c.attention_scale = 1 / std::sqrt(file.number("query_pre_attn_scalar", 256));
}

static void write_scaled_gemma(const C& c, nlohmann::ordered_json& json) {
  const double inverse = 1 / (c.attention_scale * c.attention_scale);
  const double whole = std::round(inverse);
  const bool is_whole = 1 / std::sqrt(whole) == c.attention_scale;
  if (is_whole) {
    json["query_pre_attn_scalar"] = static_cast<int64_t>(whole);
  } else {
    json["query_pre_attn_scalar"] = inverse;
  }
}

std::vector<Family> gemmas() {
  C gemma = llama_defaults();
  gemma.kv_heads = 16, gemma.head_dim = 256, gemma.max_sequence = 8192, gemma.tied = true;
  gemma.norm = NormKind::rms_plus_one, gemma.activation = Activation::gelu_tanh;
  C gemma2 = gemma;
  gemma2.kv_heads = 4, gemma2.norm_place = NormPlace::both, gemma2.window = 4096;
  C gemma3 = gemma2;
  gemma2.attention_softcap = 50, gemma2.logit_softcap = 30;
  gemma3.query_norm = QueryNorm::head, gemma3.max_sequence = 131072;
  gemma3.rope_theta = 1e6, gemma3.local_rope_theta = 1e4;
  const std::pair<std::string, nlohmann::json> causal = {"use_bidirectional_attention", false};
  Keys keys = with(llama_like(), attention_bias());
  keys.push_back({"hidden_activation", &C::activation});
  const Keys scaled = with(keys, {window(),
                                  {"attn_logit_softcapping", &C::attention_softcap, kOrNone},
                                  {"final_logit_softcapping", &C::logit_softcap, kOrNone}});
  return {
      {.type = "gemma",
       .architecture = "GemmaForCausalLM",
       .defaults = gemma,
       .keys = keys,
       .fixed = {causal},
       .complete = complete_gemma},
      {.type = "gemma2",
       .architecture = "Gemma2ForCausalLM",
       .defaults = gemma2,
       .keys = scaled,
       .fixed = {causal},
       .is_windowed = [](const ConfigFile&, int64_t layer) { return layer % 2 == 0; },
       .complete = complete_scaled_gemma,
       .write = write_scaled_gemma},
      {.type = "gemma3_text",
       .architecture = "Gemma3ForCausalLM",
       .defaults = gemma3,
       .keys = with(scaled, {{"rope_local_base_freq", &C::local_rope_theta}}),
       .fixed = {causal},
       .is_windowed =
           [](const ConfigFile& file, int64_t layer) {
             const int64_t pattern =
                 file.integer("sliding_window_pattern", file.integer("_sliding_window_pattern", 6));
             return pattern < 1 || (layer + 1) % pattern != 0;
           },
       .complete = complete_scaled_gemma,
       .write = write_scaled_gemma},
  };
}

}  // namespace weft::families
