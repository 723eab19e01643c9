// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/scratch.h"
#include "weft/transformer.h"

namespace weft {
namespace {

using Json = nlohmann::json;

TransformerConfig config_of(const Json& json) { return transformer_config_of(json.dump(), "test"); }

/// A small config of a family, with `more` keys.
Json small(const std::string& type, const Json& more = Json::object()) {
  Json json{{"model_type", type},       {"hidden_size", 64},        {"num_hidden_layers", 4},
            {"num_attention_heads", 8}, {"intermediate_size", 96},  {"vocab_size", 1000},
            {"num_key_value_heads", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 8}};
  if (type == "gpt2") {
    json = {{"model_type", type}, {"n_embd", 64}, {"n_layer", 4}, {"n_head", 8}};
    json["vocab_size"] = 1000;
  }
  if (type == "bert" || type == "modernbert" || type == "gpt_neox") {
    json.erase("num_key_value_heads");
  }
  const bool is_sparse = type.ends_with("moe") || type.starts_with("deepseek");
  if (!is_sparse) json.erase("moe_intermediate_size");
  if (!is_sparse && type != "mixtral") json.erase("num_experts_per_tok");
  json.update(more);
  return json;
}

std::string error_with(const std::string& type, const Json& more) {
  const std::string error = error_of([&] { config_of(small(type, more)); });
  const std::string start = "model config: test: ";
  return error.starts_with(start) ? error.substr(start.size()) : error;
}

/// The output of the config classes of transformers' versions: see make_config_defaults.py.
Json defaults() {
  std::ifstream file(WEFT_SOURCE_DIR "/tests/reference/config_defaults.json");
  return Json::parse(file);
}

}  // namespace

TEST(ConfigKeys, EveryVersionOfTransformersWritesConfigsThatAreRead) {
  const Json all = defaults();
  int configs = 0;
  for (const std::string& type : transformer_families()) {
    ASSERT_TRUE(all.contains(type)) << type;
    for (size_t version = 0; version < all["versions"].size(); ++version) {
      Json json = Json::object();
      for (const auto& [key, ranges] : all[type].items()) {
        for (const Json& range : ranges) {
          if (range[1] <= version && version <= range[2]) json[key] = range[0];
        }
      }
      if (json.empty()) continue;
      // The default of the first versions has no such number, and no model can be made of it.
      if (type == "deepseek_v2") json["num_experts_per_tok"] = 2;
      EXPECT_NO_THROW(config_of(json)) << type << " of " << all["versions"][version];
      ++configs;
    }
  }
  EXPECT_GT(configs, 180);
}

TEST(ConfigKeys, TakesKeysThatChangeNothing) {
  const std::vector<std::pair<std::string, Json>> published = {
      {"phi3",
       {{"attention_bias", false},
        {"mlp_bias", false},
        {"lm_head_bias", false},
        {"full_attn_mod", 1},
        {"interpolate_factor", 1},
        {"num_key_value_heads", 4}}},
      {"llama", {{"transformers.js_config", {{"dtype", "q4"}}}, {"unsloth_fixed", true}}},
      {"llama", {{"pretraining_tp", 1}, {"head_dim", nullptr}, {"max_length", 20}}},
      {"llama", {{"attention_dropout", nullptr}}},
      {"gpt_neox", {{"attention_dropout", nullptr}}},
      {"stablelm", {{"attention_dropout", nullptr}}},
      {"gpt_neox", {{"rotary_pct", 0.5}, {"partial_rotary_factor", 0.5}}},
      {"qwen2_moe", {{"sliding_window", 0}, {"use_sliding_window", false}}},
      {"mistral",
       {{"layer_types", Json::array({"sliding_attention", "sliding_attention", "sliding_attention",
                                     "sliding_attention"})}}},
      {"gpt2", {{"is_decoder", false}, {"attention_bias", false}}}};
  for (const auto& [type, more] : published) EXPECT_EQ(error_with(type, more), "nothing") << more;
}

TEST(ConfigKeys, RefusesThemAtOtherValues) {
  EXPECT_EQ(error_with("phi3", {{"lm_head_bias", true}}),
            "\"lm_head_bias\" is unsupported unless it is false, not true");
  EXPECT_EQ(error_with("phi3", {{"full_attn_mod", 2}}),
            "\"full_attn_mod\" is unsupported unless it is 1, not 2");
  EXPECT_EQ(error_with("qwen3", {{"mlp_bias", true}}),
            "\"mlp_bias\" is unsupported unless it is false, not true");
  EXPECT_EQ(error_with("gpt_neox", {{"rotary_pct", 0.5}, {"partial_rotary_factor", 0.25}}),
            "\"partial_rotary_factor\" is unsupported unless it is 0.5, not 0.25");
}

TEST(ConfigKeys, RefusesZeroNullAndEmptyValues) {
  const std::vector<std::tuple<std::string, Json, std::string>> cases = {
      {"llama", {{"head_dim", 0}}, "\"head_dim\" must be above 0, got 0"},
      {"llama", {{"head_dim", -8}}, "\"head_dim\" must be above 0, got -8"},
      {"llama", {{"num_key_value_heads", 0}}, "\"num_key_value_heads\" must be above 0, got 0"},
      {"mistral", {{"sliding_window", 0}}, "\"sliding_window\" must be above 0, got 0"},
      {"gpt2", {{"n_inner", 0}}, "\"n_inner\" must be above 0, got 0"},
      {"gpt_neox", {{"rotary_pct", 0.0}}, "\"rotary_pct\" must be above 0, got 0"},
      {"granite", {{"attention_multiplier", 0}}, "\"attention_multiplier\" must be above 0, got 0"},
      {"gemma2",
       {{"final_logit_softcapping", 0.0}},
       "\"final_logit_softcapping\" must be above 0, got 0"},
      {"gemma2",
       {{"query_pre_attn_scalar", 0}},
       "\"query_pre_attn_scalar\" must be above 0, got 0"},
      {"bert", {{"type_vocab_size", 0}}, "\"type_vocab_size\" must be above 0, got 0"},
      {"deepseek_v3", {{"kv_lora_rank", 0}}, "\"kv_lora_rank\" must be above 0, got 0"},
      {"deepseek_v3", {{"q_lora_rank", 0}}, "\"q_lora_rank\" must be above 0, got 0"},
      {"llama",
       {{"rms_norm_eps", nullptr}},
       "\"rms_norm_eps\" is null, expected a value, or the key missing"},
      {"llama", {{"hidden_size", nullptr}}, "the key \"hidden_size\" is missing"},
      {"qwen2", {{"layer_types", Json::array()}}, "\"layer_types\" has 0 entries, expected 4"},
      {"llama", {{"layer_types", Json::array()}}, "\"layer_types\" has 0 entries, expected 4"},
      {"qwen2",
       {{"layer_types", Json(5, "full_attention")}},
       "\"layer_types\" has 5 entries, expected 4"},
      {"mistral",
       {{"layer_types",
         Json::array({"full_attention", "full_attention", "full_attention", "sliding_attention"})}},
       "\"layer_types\" differ from the layers of mistral, expected all \"sliding_attention\""},
      {"llama",
       {{"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}, {"attention_factor", 0.0}}}},
       "\"rope_scaling\": \"attention_factor\" must be above 0, got 0"},
      {"gemma3_text",
       {{"rope_scaling", {{"full_attention", {{"rope_type", "linear"}, {"factor", 2.0}}}}}},
       "\"rope_scaling\": scaling is nested by the types of layers, expected it in "
       "\"rope_parameters\""},
      {"smollm3",
       {{"no_rope_layers", Json::array()}},
       "\"no_rope_layers\" has 0 integers, expected 4, one a layer"},
      {"llama", {{"head_dim", "8"}}, "\"head_dim\" is string, not a number"},
      {"llama", {{"attention_bias", 0}}, "\"attention_bias\" is number, not true or false"}};
  for (const auto& [type, more, error] : cases) EXPECT_EQ(error_with(type, more), error) << type;
}

TEST(ConfigKeys, ReadsTheTokenOfPadding) {
  const auto padding = [](const std::string& type, const Json& more) {
    return config_of(small(type, more)).padding;
  };
  const std::optional<int64_t> none;
  EXPECT_EQ(padding("llama", {{"pad_token_id", 5}}), 5);
  EXPECT_EQ(padding("llama", {{"pad_token_id", -1}}), 999);
  EXPECT_EQ(padding("llama", Json::object()), none);
  EXPECT_EQ(padding("gemma2", Json::object()), 0);
  EXPECT_EQ(padding("gemma2", {{"pad_token_id", nullptr}}), none);
  EXPECT_EQ(padding("phi3", Json::object()), none);  // its default is no row of this table
  EXPECT_EQ(padding("phi3", {{"vocab_size", 32064}}), 32000);
  for (const char* type : {"gpt2", "gpt_neox"}) {
    EXPECT_EQ(padding(type, {{"pad_token_id", 5}}), none);
  }
  EXPECT_EQ(error_with("llama", {{"pad_token_id", 1000}}),
            "\"pad_token_id\": padding is 1000, expected one from -1000 to 999");
  const TransformerConfig config = config_of(small("llama", {{"pad_token_id", 5}}));
  EXPECT_EQ(transformer_config_of(config_json(config), "written"), config);
}

TEST(ConfigKeys, RotatesThePartThatTheFamilyReads) {
  const auto fraction = [](const std::string& type, const Json& rope) {
    return config_of(small(type, {{"rope_parameters", rope}})).rotary_fraction;
  };
  const Json half{{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  for (const char* type : {"phi3", "gpt_neox", "stablelm"}) EXPECT_EQ(fraction(type, half), 0.5);
  for (const char* type : {"llama", "mistral", "qwen3", "gemma", "olmo2", "starcoder2"}) {
    EXPECT_EQ(fraction(type, half), 1) << type;
    EXPECT_EQ(config_of(small(type, {{"partial_rotary_factor", 0.5}})).rotary_fraction, 1);
  }
  const Json scaled{{"rope_type", "linear"}, {"factor", 2.0}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(error_with("llama", {{"rope_parameters", scaled}}),
            "\"rope_parameters\": \"partial_rotary_factor\" is unsupported unless it is 1, not "
            "0.5");
}

}  // namespace weft
