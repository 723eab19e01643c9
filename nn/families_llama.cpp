// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>

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

/// Every fourth layer does not rotate, unless there is a list. These layers have the window.
static bool is_unrotated(const ConfigFile& file, int64_t layer) {
  const nlohmann::json flags = file.list("no_rope_layers");
  const int64_t interval = file.integer("no_rope_layer_interval", 4);
  const auto at = static_cast<size_t>(layer);
  const bool listed = at < flags.size() && flags[at].is_number_integer();
  if (!flags.empty() && !listed) {
    file.mistake("\"no_rope_layers\" has ", flags.size(), " integers, expected ",
                 file.integer("num_hidden_layers", 0), ", one a layer");
  }
  if (interval == 0) file.mistake("\"no_rope_layer_interval\" must be at least 1, got 0");
  return listed ? flags[at] == 0 : (layer + 1) % interval == 0;
}

static void complete_smollm3(const ConfigFile& file, C& c) {
  complete_qwen(file, c);
  c.unrotated.clear();
  for (int64_t i = 0; i < c.layers; ++i) c.unrotated.push_back(is_unrotated(file, i));
}

static void write_smollm3(const C& c, nlohmann::ordered_json& json) {
  write_use_of_window(c, json);
  json["no_rope_layers"] = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < c.layers; ++i) {
    json["no_rope_layers"].push_back(c.rotates(i) ? 1 : 0);
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
       .is_windowed = is_unrotated,
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
  json["query_pre_attn_scalar"] = inverse;
  if (1 / std::sqrt(whole) == c.attention_scale) {
    json["query_pre_attn_scalar"] = static_cast<int64_t>(whole);
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

/// Keeps the flags of the dense layers, if there is one.
static void set_dense(C& c, bool (*is_dense)(const ConfigFile&, int64_t), const ConfigFile& file) {
  c.dense.clear();
  for (int64_t i = 0; i < c.layers; ++i) c.dense.push_back(is_dense(file, i));
  if (std::ranges::count(c.dense, true) == 0) c.dense.clear();
}

static void complete_mixtral(const ConfigFile&, C& c) { c.expert_ffn = c.ffn; }

static bool is_dense_in_qwen(const ConfigFile& file, int64_t layer) {
  const int64_t step = file.integer("decoder_sparse_step", 1);
  if (step < 1) file.mistake("\"decoder_sparse_step\" must be at least 1, got ", step);
  const nlohmann::json dense = file.list("mlp_only_layers");
  return std::ranges::count(dense, nlohmann::json(layer)) > 0 || (layer + 1) % step != 0;
}

static void complete_qwen_moe(const ConfigFile& file, C& c) {
  if (!file.flag("use_sliding_window", false)) c.window = 0;
  file.integer("max_window_layers", 0);
  set_dense(c, is_dense_in_qwen, file);
}

static void write_qwen_moe(const C& c, nlohmann::ordered_json& json) {
  json["use_sliding_window"] = c.window > 0;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < c.layers; ++i) {
    if (!c.is_sparse(i)) json["mlp_only_layers"].push_back(i);
  }
}

static bool has_qwen2_moe_window(const ConfigFile& file, int64_t layer) {
  return layer % 2 == 0 && layer < file.integer("max_window_layers", 28);
}

static int64_t first_sparse(const ConfigFile& file) {
  const bool is_third = file.text("model_type", "") == "deepseek_v3";
  return file.integer("first_k_dense_replace", is_third ? 3 : 0);
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
  set_dense(
      c, [](const ConfigFile& f, int64_t layer) { return layer < first_sparse(f); }, file);
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

static Keys loss_keys() {
  return {{"num_experts_per_tok", &C::experts_per_token},
          {"output_router_logits", &C::balance_loss},
          {"router_aux_loss_coef", &C::balance_coefficient}};
}

static Keys qwen_moe_keys() {
  return with(with(llama_like(), loss_keys()), {{"num_experts", &C::experts},
                                                {"num_local_experts", &C::experts},
                                                {"moe_intermediate_size", &C::expert_ffn},
                                                {"norm_topk_prob", &C::normalized_weights},
                                                window()});
}

static Keys deepseek_keys() {
  return with(with(llama_like(), attention_bias()), {{"num_experts_per_tok", &C::experts_per_token},
                                                     {"n_routed_experts", &C::experts},
                                                     {"moe_intermediate_size", &C::expert_ffn},
                                                     {"routed_scaling_factor", &C::routed_scale},
                                                     {"n_group", &C::expert_groups},
                                                     {"topk_group", &C::top_groups},
                                                     {"kv_lora_rank", &C::kv_lora_rank},
                                                     {"q_lora_rank", &C::q_lora_rank, kOrNone},
                                                     {"qk_rope_head_dim", &C::head_dim},
                                                     {"qk_nope_head_dim", &C::nope_head_dim},
                                                     {"v_head_dim", &C::value_head_dim}});
}

static Names expert_names() {
  return {{"mlp.experts.gate_proj", "mlp.experts.*.gate_proj.weight", kExperts},
          {"mlp.experts.up_proj", "mlp.experts.*.up_proj.weight", kExperts},
          {"mlp.experts.down_proj", "mlp.experts.*.down_proj.weight", kExperts}};
}

static Names mixtral_names() {
  return {{"mlp.gate", "block_sparse_moe.gate"},
          {"mlp.experts.gate_proj", "block_sparse_moe.experts.*.w1.weight", kExperts},
          {"mlp.experts.up_proj", "block_sparse_moe.experts.*.w3.weight", kExperts},
          {"mlp.experts.down_proj", "block_sparse_moe.experts.*.w2.weight", kExperts}};
}

static C deepseek_defaults() {
  C c = llama_defaults();
  c.experts = 64, c.expert_ffn = 1407, c.normalized_weights = false;
  c.f32_router = true;
  c.kv_lora_rank = 512, c.q_lora_rank = 1536, c.nope_head_dim = c.value_head_dim = 128;
  c.head_dim = 64, c.max_sequence = 2048;
  return c;
}

std::vector<Family> sparse() {
  C mixtral = llama_defaults(), qwen2 = mixtral, deepseek2 = deepseek_defaults();
  mixtral.norm_eps = 1e-5, mixtral.rope_theta = 1e6, mixtral.kv_heads = 8;
  mixtral.max_sequence = 4096 * 32, mixtral.experts = 8;
  qwen2.kv_heads = 16, qwen2.max_sequence = 32768, qwen2.window = 4096, qwen2.experts = 60;
  qwen2.experts_per_token = 4, qwen2.expert_ffn = 1408, qwen2.normalized_weights = false;
  C qwen3 = qwen2, deepseek3 = deepseek2;
  qwen2.qkv_bias = qwen2.shared_gate = true, qwen2.shared_ffn = 5632;
  qwen3.kv_heads = 4, qwen3.query_norm = QueryNorm::head, qwen3.experts = 128;
  qwen3.experts_per_token = 8, qwen3.expert_ffn = 768;
  deepseek3.experts = 256, deepseek3.expert_ffn = 2048, deepseek3.experts_per_token = 8;
  deepseek3.sigmoid_router = deepseek3.normalized_weights = true, deepseek3.routed_scale = 2.5;
  deepseek3.expert_groups = 8, deepseek3.top_groups = 4, deepseek3.max_sequence = 4096;
  return {
      {.type = "mixtral",
       .architecture = "MixtralForCausalLM",
       .defaults = mixtral,
       .keys =
           with(with(llama_like(), loss_keys()), {{"num_local_experts", &C::experts}, window()}),
       .fixed = {{"router_jitter_noise", 0.0}},
       .complete = complete_mixtral,
       .names = mixtral_names()},
      {.type = "qwen2_moe",
       .architecture = "Qwen2MoeForCausalLM",
       .defaults = qwen2,
       .keys = with(qwen_moe_keys(), {{"qkv_bias", &C::qkv_bias},
                                      {"shared_expert_intermediate_size", &C::shared_ffn}}),
       .is_windowed = has_qwen2_moe_window,
       .complete = complete_qwen_moe,
       .write = write_qwen_moe,
       .names = expert_names()},
      {.type = "qwen3_moe",
       .architecture = "Qwen3MoeForCausalLM",
       .defaults = qwen3,
       .keys = with(qwen_moe_keys(), attention_bias()),
       .complete = complete_qwen_moe,
       .write = write_qwen_moe,
       .names = expert_names()},
      {.type = "deepseek_v2",
       .architecture = "DeepseekV2ForCausalLM",
       .defaults = deepseek2,
       .keys = deepseek_keys(),
       .fixed = {{"mlp_bias", false},
                 {"norm_topk_prob", false},
                 {"scoring_func", "softmax"},
                 {"moe_layer_freq", 1}},
       .complete = complete_deepseek,
       .write = write_deepseek,
       .names = expert_names()},
      {.type = "deepseek_v3",
       .architecture = "DeepseekV3ForCausalLM",
       .defaults = deepseek3,
       .keys = with(deepseek_keys(), {{"norm_topk_prob", &C::normalized_weights},
                                      {"rope_interleave", &C::rope_interleave}}),
       .fixed = {{"scoring_func", "sigmoid"}, {"moe_layer_freq", 1}},
       .complete = complete_deepseek,
       .write = write_deepseek,
       .names = expert_names()},
  };
}

}  // namespace weft::families
