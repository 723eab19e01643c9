// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "nn/families.h"

namespace weft::families {

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
