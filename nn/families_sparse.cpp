// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "nn/families.h"

namespace weft::families {

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
