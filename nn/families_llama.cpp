// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "nn/families.h"

namespace weft::families {

static C llama_defaults() { return {.norm_eps = 1e-6}; }

static bool has_qwen_window(const ConfigFile& file, int64_t layer) {
  return layer >= file.integer("max_window_layers", 28);
}

/// Every fourth layer does not rotate, unless there is a list. These layers have the window.
static bool is_unrotated(const ConfigFile& file, int64_t layer) {
  const nlohmann::json flags = file.list("no_rope_layers");
  const int64_t interval = file.integer("no_rope_layer_interval", 4);
  const auto at = static_cast<size_t>(layer);
  const bool listed = at < flags.size() && flags[at].is_number_integer();
  if (!file.lacks("no_rope_layers") && !listed) {
    file.mistake("\"no_rope_layers\" has ", flags.size(), " integers, expected ",
                 file.integer("num_hidden_layers", 0), ", one a layer");
  }
  if (interval == 0) file.mistake("\"no_rope_layer_interval\" must be at least 1, got 0");
  return listed ? flags[at] == 0 : (layer + 1) % interval == 0;
}

static std::vector<Family> plain_llamas() {
  const C d = llama_defaults();
  const Keys windowed = with(llama_like(), {window()});
  const Keys biased = with(llama_like(), attention_bias());
  const Keys both_biased = with(biased, {mlp_bias()});
  Family llama{"llama", "LlamaForCausalLM", d, both_biased};
  llama.fixed = {{"rope_interleaved", false}};

  C c = d;
  c.kv_heads = 8, c.max_sequence = 4096 * 32, c.window = 4096;
  const Family mistral{"mistral", "MistralForCausalLM", c, windowed};

  c.kv_heads = 32, c.max_sequence = 32768, c.qkv_bias = true;
  Family qwen2{"qwen2", "Qwen2ForCausalLM", c, windowed};
  qwen2.fixed = {{"use_mrope", false}};
  qwen2.is_windowed = has_qwen_window, qwen2.has_window_switch = true;

  c.qkv_bias = false, c.query_norm = QueryNorm::head, c.head_dim = 128;
  Family qwen3{"qwen3", "Qwen3ForCausalLM", c, with(biased, {window()})};
  qwen3.is_windowed = has_qwen_window, qwen3.has_window_switch = true;

  c = d, c.kv_heads = 4, c.max_sequence = 32768, c.rope_theta = 2e6, c.tied = true;
  c.padding = 128004;
  Family smollm3{"smollm3", "SmolLM3ForCausalLM", c, with(both_biased, {window()})};
  smollm3.is_windowed = is_unrotated, smollm3.has_window_switch = true;
  smollm3.complete = [](const ConfigFile& file, C& own) {
    own.unrotated.clear();
    for (int64_t i = 0; i < own.layers; ++i) own.unrotated.push_back(is_unrotated(file, i));
  };
  smollm3.write = [](const C& own, nlohmann::ordered_json& json) {
    json["no_rope_layers"] = nlohmann::ordered_json::array();
    for (int64_t i = 0; i < own.layers; ++i)
      json["no_rope_layers"].push_back(own.rotates(i) ? 1 : 0);
  };

  c = d, c.attention_scale = 1;
  const Family granite{"granite", "GraniteForCausalLM", c,
                       with(both_biased, {{"embedding_multiplier", &C::embedding_scale},
                                          {"logits_scaling", &C::logit_divisor},
                                          {"residual_multiplier", &C::residual_scale},
                                          {"attention_multiplier", &C::attention_scale}})};

  c = d, c.norm_eps = 1e-5, c.query_norm = QueryNorm::width, c.norm_place = NormPlace::after;
  c.padding = 1;
  const Family olmo2{"olmo2", "Olmo2ForCausalLM", c, biased};

  c = d, c.max_sequence = c.rope_scaling.original_max = 4096, c.norm_eps = 1e-5;
  c.padding = 32000;
  Family phi3{"phi3", "Phi3ForCausalLM", c,
              with(windowed, {{"partial_rotary_factor", &C::rotary_fraction},
                              {"resid_pdrop", &C::residual_dropout},
                              {"embd_pdrop", &C::embedding_dropout}})};
  phi3.names = fused("self_attn.qkv_proj", "mlp.gate_up_proj");
  return {llama, mistral, qwen2, qwen3, smollm3, granite, olmo2, phi3};
}

static void scale_by_width(C& c) { c.embedding_scale = std::sqrt(static_cast<double>(c.dim)); }

static void complete_scaled_gemma(const ConfigFile& file, C& c) {
  scale_by_width(c);
  const double scalar = file.number("query_pre_attn_scalar", 256);
  if (scalar <= 0) file.mistake("\"query_pre_attn_scalar\" must be above 0, got ", scalar);
  c.attention_scale = 1 / std::sqrt(scalar);
}

static void write_scaled_gemma(const C& c, nlohmann::ordered_json& json) {
  const double inverse = 1 / (c.attention_scale * c.attention_scale);
  const double whole = std::round(inverse);
  json["query_pre_attn_scalar"] = inverse;
  if (1 / std::sqrt(whole) == c.attention_scale) {
    json["query_pre_attn_scalar"] = static_cast<int64_t>(whole);
  }
}

static std::vector<Family> gemmas() {
  C c = llama_defaults();
  c.kv_heads = 16, c.head_dim = 256, c.max_sequence = 8192, c.tied = true, c.padding = 0;
  c.norm = NormKind::rms_plus_one, c.activation = Activation::gelu_tanh;
  Keys keys = with(llama_like(), attention_bias());
  keys.push_back({"hidden_activation", &C::activation});
  Family gemma{"gemma", "GemmaForCausalLM", c, keys};
  gemma.fixed = {{"use_bidirectional_attention", false}};
  gemma.complete = [](const ConfigFile&, C& own) {
    // The first files say "gelu" and mean its approximation; transformers reads it so as well.
    if (own.activation == Activation::gelu) own.activation = Activation::gelu_tanh;
    scale_by_width(own);
  };

  c.kv_heads = 4, c.norm_place = NormPlace::both, c.window = 4096;
  c.attention_softcap = 50, c.logit_softcap = 30;
  keys = with(keys, {window(),
                     {"attn_logit_softcapping", &C::attention_softcap, kOrNone},
                     {"final_logit_softcapping", &C::logit_softcap, kOrNone}});
  Family gemma2{"gemma2", "Gemma2ForCausalLM", c, keys, gemma.fixed};
  gemma2.is_windowed = [](const ConfigFile&, int64_t layer) { return layer % 2 == 0; };
  gemma2.complete = complete_scaled_gemma, gemma2.write = write_scaled_gemma;

  c.attention_softcap = c.logit_softcap = 0;
  c.query_norm = QueryNorm::head, c.max_sequence = 131072;
  c.rope_theta = 1e6, c.local_rope_theta = 1e4;
  keys.push_back({"rope_local_base_freq", &C::local_rope_theta});
  Family gemma3{"gemma3_text", "Gemma3ForCausalLM", c, keys, gemma.fixed};
  gemma3.is_windowed = [](const ConfigFile& file, int64_t layer) {
    const int64_t pattern =
        file.integer("sliding_window_pattern", file.integer("_sliding_window_pattern", 6));
    return pattern < 1 || (layer + 1) % pattern != 0;
  };
  gemma3.complete = complete_scaled_gemma, gemma3.write = write_scaled_gemma;
  return {gemma, gemma2, gemma3};
}

/// Keeps the flags of the dense layers, if there is one.
template <class Holds> static void set_dense(C& c, const Holds& is_dense) {
  c.dense.clear();
  for (int64_t i = 0; i < c.layers; ++i) c.dense.push_back(is_dense(i));
  if (std::ranges::count(c.dense, true) == 0) c.dense.clear();
}

static void complete_qwen_moe(const ConfigFile& file, C& c) {
  file.integer("max_window_layers", 0);
  const int64_t step = file.integer("decoder_sparse_step", 1);
  if (step < 1) file.mistake("\"decoder_sparse_step\" must be at least 1, got ", step);
  const nlohmann::json dense = file.list("mlp_only_layers");
  set_dense(c, [&](int64_t layer) {
    return std::ranges::count(dense, nlohmann::json(layer)) > 0 || (layer + 1) % step != 0;
  });
}

static void write_qwen_moe(const C& c, nlohmann::ordered_json& json) {
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < c.layers; ++i) {
    if (!c.is_sparse(i)) json["mlp_only_layers"].push_back(i);
  }
}

static int64_t shared_width(const ConfigFile& file, int64_t expert_width, int64_t otherwise) {
  // A width that is out of range is refused with all sizes.
  const int64_t width = std::clamp<int64_t>(expert_width, 1, INT32_MAX), most = INT32_MAX / width;
  const int64_t shared = file.integer("n_shared_experts", otherwise);
  if (shared < 0 || shared > most) {
    file.mistake("\"n_shared_experts\" is ", shared, ", expected 0 to ", most);
  }
  return width * shared;
}

static void complete_deepseek(const ConfigFile& file, C& c) {
  const bool is_third = c.family == "deepseek_v3";
  const std::string method = file.text("topk_method", is_third ? "noaux_tc" : "greedy");
  if (method == "greedy" && !is_third) {
    c.expert_groups = c.top_groups = 1;
  } else if (method != (is_third ? "noaux_tc" : "group_limited_greedy")) {
    file.mistake("\"topk_method\" is ", in_quotes(method), ", expected ",
                 is_third ? "noaux_tc" : "greedy or group_limited_greedy");
  }
  c.shared_ffn = shared_width(file, c.expert_ffn, is_third ? 1 : 2);
  const int64_t first_sparse = file.integer("first_k_dense_replace", is_third ? 3 : 0);
  set_dense(c, [&](int64_t layer) { return layer < first_sparse; });
}

static void write_deepseek(const C& c, nlohmann::ordered_json& json) {
  const bool is_third = c.family == "deepseek_v3";
  json["n_shared_experts"] = c.shared_ffn / std::max<int64_t>(1, c.expert_ffn);
  json["first_k_dense_replace"] = std::ranges::count(c.dense, true);
  json["moe_layer_freq"] = 1;
  json["scoring_func"] = is_third ? "sigmoid" : "softmax";
  json["topk_method"] = "noaux_tc";
  if (!is_third) json["topk_method"] = c.expert_groups > 1 ? "group_limited_greedy" : "greedy";
}

static Names expert_names() {
  return {{"mlp.experts.gate_proj", "mlp.experts.*.gate_proj.weight", kExperts},
          {"mlp.experts.up_proj", "mlp.experts.*.up_proj.weight", kExperts},
          {"mlp.experts.down_proj", "mlp.experts.*.down_proj.weight", kExperts}};
}

static std::vector<Family> mixtures() {
  const C d = llama_defaults();
  C c = d;
  c.norm_eps = 1e-5, c.rope_theta = 1e6, c.kv_heads = 8, c.max_sequence = 4096 * 32, c.experts = 8;
  const Keys lossy = with(llama_like(), {{"num_experts_per_tok", &C::experts_per_token},
                                         {"output_router_logits", &C::balance_loss},
                                         {"router_aux_loss_coef", &C::balance_coefficient}});
  Family mixtral{"mixtral", "MixtralForCausalLM", c,
                 with(lossy, {{"num_local_experts", &C::experts}, window()})};
  mixtral.fixed = {{"router_jitter_noise", 0.0}};
  mixtral.complete = [](const ConfigFile&, C& own) { own.expert_ffn = own.ffn; };
  mixtral.names = {{"mlp.gate", "block_sparse_moe.gate"},
                   {"mlp.experts.gate_proj", "block_sparse_moe.experts.*.w1.weight", kExperts},
                   {"mlp.experts.up_proj", "block_sparse_moe.experts.*.w3.weight", kExperts},
                   {"mlp.experts.down_proj", "block_sparse_moe.experts.*.w2.weight", kExperts}};

  const Keys qwen_keys = with(lossy, {{"num_experts", &C::experts},
                                      {"num_local_experts", &C::experts},
                                      {"moe_intermediate_size", &C::expert_ffn},
                                      {"norm_topk_prob", &C::normalized_weights},
                                      window()});
  c = d, c.kv_heads = 16, c.max_sequence = 32768, c.window = 4096, c.experts = 60;
  c.experts_per_token = 4, c.expert_ffn = 1408, c.normalized_weights = false;
  c.qkv_bias = c.shared_gate = true, c.shared_ffn = 5632;
  Family qwen2{"qwen2_moe", "Qwen2MoeForCausalLM", c,
               with(qwen_keys, {{"qkv_bias", &C::qkv_bias},
                                {"shared_expert_intermediate_size", &C::shared_ffn}})};
  qwen2.is_windowed = [](const ConfigFile& file, int64_t layer) {
    return layer % 2 == 0 && layer < file.integer("max_window_layers", 28);
  };
  qwen2.has_window_switch = true;
  qwen2.complete = complete_qwen_moe, qwen2.write = write_qwen_moe, qwen2.names = expert_names();

  c.qkv_bias = c.shared_gate = false, c.shared_ffn = 0;
  c.kv_heads = 4, c.query_norm = QueryNorm::head, c.experts = 128;
  c.experts_per_token = 8, c.expert_ffn = 768;
  Family qwen3{"qwen3_moe", "Qwen3MoeForCausalLM", c, with(qwen_keys, attention_bias())};
  qwen3.has_window_switch = true;
  qwen3.complete = complete_qwen_moe, qwen3.write = write_qwen_moe, qwen3.names = expert_names();
  return {mixtral, qwen2, qwen3};
}

static std::vector<Family> deepseeks() {
  C c = llama_defaults();
  c.experts = 64, c.expert_ffn = 1407, c.normalized_weights = false, c.f32_router = true;
  c.kv_lora_rank = 512, c.q_lora_rank = 1536, c.nope_head_dim = c.value_head_dim = 128;
  c.head_dim = 64, c.max_sequence = 2048;
  const Keys keys =
      with(with(llama_like(), attention_bias()), {{"num_experts_per_tok", &C::experts_per_token},
                                                  {"n_routed_experts", &C::experts},
                                                  {"moe_intermediate_size", &C::expert_ffn},
                                                  {"routed_scaling_factor", &C::routed_scale},
                                                  {"n_group", &C::expert_groups, kOrNone},
                                                  {"topk_group", &C::top_groups, kOrNone},
                                                  {"kv_lora_rank", &C::kv_lora_rank},
                                                  {"q_lora_rank", &C::q_lora_rank, kOrNone},
                                                  {"qk_rope_head_dim", &C::head_dim},
                                                  {"qk_nope_head_dim", &C::nope_head_dim},
                                                  {"v_head_dim", &C::value_head_dim}});
  Family second{"deepseek_v2", "DeepseekV2ForCausalLM", c, keys};
  second.fixed = {{"mlp_bias", false},
                  {"norm_topk_prob", false},
                  {"scoring_func", "softmax"},
                  {"moe_layer_freq", 1}};
  second.complete = complete_deepseek, second.write = write_deepseek;
  second.names = expert_names();

  Family third = second;
  c.experts = 256, c.expert_ffn = 2048, c.experts_per_token = 8;
  c.sigmoid_router = c.normalized_weights = true, c.routed_scale = 2.5;
  c.expert_groups = 8, c.top_groups = 4, c.max_sequence = 4096;
  third.type = "deepseek_v3", third.architecture = "DeepseekV3ForCausalLM", third.defaults = c;
  third.keys = with(
      keys, {{"norm_topk_prob", &C::normalized_weights}, {"rope_interleave", &C::rope_interleave}});
  third.fixed = {{"scoring_func", "sigmoid"}, {"moe_layer_freq", 1}};
  return {second, third};
}

std::vector<Family> llamas() {
  return with(with(plain_llamas(), gemmas()), with(mixtures(), deepseeks()));
}

}  // namespace weft::families
