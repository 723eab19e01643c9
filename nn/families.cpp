// SPDX-License-Identifier: Apache-2.0
#include "nn/families.h"

namespace weft {

namespace families {

Keys with(Keys keys, const Keys& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

Keys sizes() {
  return {{"hidden_size", &C::dim, kRequired},
          {"num_hidden_layers", &C::layers, kRequired},
          {"num_attention_heads", &C::heads, kRequired},
          {"intermediate_size", &C::ffn, kRequired},
          {"vocab_size", &C::vocabulary, kRequired},
          {"max_position_embeddings", &C::max_sequence},
          {"tie_word_embeddings", &C::tied},
          {"initializer_range", &C::deviation}};
}

Keys llama_like() {
  return with(sizes(), {{"num_key_value_heads", &C::kv_heads, kOrNone},
                        {"head_dim", &C::head_dim, kOrNone},
                        {"hidden_act", &C::activation},
                        {"rms_norm_eps", &C::norm_eps},
                        {"rope_theta", &C::rope_theta},
                        {"attention_dropout", &C::attention_dropout}});
}

Keys attention_bias() {
  return {{"attention_bias", &C::qkv_bias}, {"attention_bias", &C::output_bias}};
}

ConfigKey mlp_bias() { return {"mlp_bias", &C::mlp_bias}; }
ConfigKey window() { return {"sliding_window", &C::window, kOrNone}; }

C llama_defaults() { return {.norm_eps = 1e-6}; }

C plain_defaults() {
  C c;
  c.norm = NormKind::layer, c.gated = false, c.activation = Activation::gelu;
  c.norm_bias = c.qkv_bias = c.output_bias = c.mlp_bias = true;
  return c;
}

Names fused(std::string_view qkv, std::string_view gate_up) {
  return {{"self_attn.q_proj", qkv},
          {"self_attn.k_proj", qkv},
          {"self_attn.v_proj", qkv},
          {"mlp.gate_proj", gate_up},
          {"mlp.up_proj", gate_up}};
}

}  // namespace families

static std::vector<Family> all_families() {
  std::vector<Family> all = families::llamas();
  for (const auto& more :
       {families::gemmas(), families::gpts(), families::encoders(), families::sparse()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

const std::vector<Family>& all_known_families() {
  static const std::vector<Family> all = all_families();
  return all;
}

const Family* find_family(const std::string& type) {
  for (const Family& family : all_known_families()) {
    if (family.type == type) return &family;
  }
  return nullptr;
}

}  // namespace weft
