// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/scratch.h"
#include "weft/transformer.h"

namespace weft {
namespace {

/// Reads a small config of this "model_type", with `more` keys.
TransformerConfig config_of(const std::string& type, const std::string& more = "") {
  const bool is_encoder = type == "bert" || type == "modernbert";
  const char* heads = is_encoder ? "" : R"(, "num_key_value_heads": 8)";
  return transformer_config_of(R"({"model_type": ")" + type + R"(", "hidden_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 96,
    "vocab_size": 1000)" + heads + more +
                                   "}",
                               "test");
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Returns the text that is written, which must read as the same config.
std::string written_again(const TransformerConfig& config) {
  const std::string text = config_json(config);
  EXPECT_EQ(transformer_config_of(text, "written"), config) << text;
  return text;
}

constexpr const char* kGlobal = R"(, "layer_types": ["full_attention", "full_attention",
    "full_attention", "full_attention"])";

}  // namespace

TEST(FamilyConfig, WritesTheTypesOfLayersWithoutAWindow) {
  for (const char* type : {"gemma2", "gemma3_text", "qwen2", "qwen3", "smollm3", "modernbert"}) {
    const TransformerConfig config = config_of(type, kGlobal);
    EXPECT_EQ(config.window, 0) << type;
    const std::string text = written_again(config);
    EXPECT_TRUE(contains(text, "\"full_attention\"")) << text;
    for (const char* absent : {"\"sliding_attention\"", "\"sliding_window\"", "local_attention"}) {
      EXPECT_FALSE(contains(text, absent)) << text;
    }
  }
  // There, null is the only way to write that there is none.
  const TransformerConfig mistral = config_of("mistral", R"(, "sliding_window": null)");
  EXPECT_TRUE(contains(written_again(mistral), "\"sliding_window\": null"));
  const TransformerConfig llama = config_of("llama", R"(, "attention_dropout": null)");
  EXPECT_EQ(llama.attention_dropout, 0);
  EXPECT_TRUE(contains(written_again(llama), "\"attention_dropout\": 0.0"));
}

TEST(FamilyConfig, WindowsTheLayersOfSmolLM3WithoutRotation) {
  const std::string window = R"(, "use_sliding_window": true, "sliding_window": 16)";
  const TransformerConfig by_rule =
      config_of("smollm3", window + R"(, "no_rope_layer_interval": 2)");
  EXPECT_EQ(by_rule.window, 16);
  EXPECT_EQ(by_rule.windowed, (std::vector<bool>{false, true, false, true}));
  written_again(by_rule);
  const TransformerConfig listed =
      config_of("smollm3", window + R"(, "no_rope_layers": [0, 1, 1, 0])");
  EXPECT_EQ(listed.windowed, (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(listed.windowed, listed.unrotated);
  written_again(listed);
  EXPECT_EQ(config_of("smollm3", R"(, "sliding_window": 16)").window, 0);
}

TEST(FamilyConfig, RefusesAScalingOfAllLayersOfModernBERT) {
  const std::string linear = R"({"rope_type": "linear", "factor": 2.0})";
  EXPECT_EQ(error_of([&] { config_of("modernbert", R"(, "rope_scaling": )" + linear); }),
            "model config: test: \"rope_scaling\": scaling is that of all layers, expected "
            "\"full_attention\" and \"sliding_attention\"");
  const TransformerConfig global =
      config_of("modernbert", R"(, "rope_parameters": {"full_attention": )" + linear + "}");
  EXPECT_EQ(global.rope_scaling.factor, 2);
  EXPECT_FALSE(contains(written_again(global), "rope_scaling"));
}

TEST(FamilyConfig, TakesTheOriginalLengthOfPhi3FromItsOwnKey) {
  const auto phi3 = [](const std::string& outside, const std::string& inside) {
    const std::string factors = R"("short_factor": [1, 1, 1, 1], "long_factor": [2, 2, 2, 2])";
    return config_of("phi3", R"(, "max_position_embeddings": 131072)" + outside +
                                 R"(, "rope_scaling": {"type": "longrope", )" + factors + inside +
                                 "}");
  };
  const std::string key = R"(, "original_max_position_embeddings": )";
  EXPECT_EQ(phi3("", "").rope_scaling.original_max, 4096);
  EXPECT_EQ(phi3("", "").rope_scaling.factor, 32);
  EXPECT_EQ(phi3("", key + "8192").rope_scaling.original_max, 4096);
  EXPECT_EQ(phi3(key + "2048", key + "8192").rope_scaling.original_max, 2048);
  written_again(phi3("", ""));
  written_again(phi3(key + "2048", ""));
}

TEST(FamilyConfig, ReadsTheActivationOfTheHead) {
  const std::string tanh = R"(, "hidden_activation": "gelu_pytorch_tanh")";
  EXPECT_EQ(config_of("modernbert", tanh).head_activation, Activation::gelu);
  const TransformerConfig relu =
      config_of("modernbert", tanh + R"(, "classifier_activation": "relu")");
  EXPECT_EQ(relu.activation, Activation::gelu_tanh);
  EXPECT_EQ(relu.head_activation, Activation::relu);
  written_again(relu);
  const TransformerConfig bert = config_of("bert", R"(, "hidden_act": "relu")");
  EXPECT_EQ(bert.head_activation, Activation::relu);
  written_again(bert);
}

TEST(FamilyConfig, ReadsKeysWithTheirOnlyValue) {
  written_again(config_of("llama", R"(, "rope_interleaved": false, "is_llama_config": true)"));
  written_again(config_of("qwen2", R"(, "use_mrope": false)"));
  written_again(config_of("starcoder2", R"(, "mlp_type": "default", "norm_type": "layer_norm",
    "rms_norm_eps": 1e-6)"));
  written_again(config_of("bert", R"(, "directionality": "bidi", "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3, "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform")"));
  EXPECT_EQ(error_of([] { config_of("starcoder2", R"(, "norm_type": "rms_norm")"); }),
            "model config: test: \"norm_type\" is unsupported unless it is \"layer_norm\", not "
            "\"rms_norm\"");
}

TEST(FamilyConfig, KnowsTheOldNamesOfNormsInBERT) {
  std::vector<std::string> names;
  for (const FileTensor& tensor : file_tensors(config_of("bert"))) {
    EXPECT_FALSE(tensor.names[0].ends_with("gamma") || tensor.names[0].ends_with("beta"));
    names.insert(names.end(), tensor.names.begin(), tensor.names.end());
  }
  for (const char* name : {"bert.embeddings.LayerNorm.gamma", "embeddings.LayerNorm.beta",
                           "bert.encoder.layer.3.output.LayerNorm.gamma"}) {
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
  }
}

TEST(FamilyConfig, WritesTheUsualNameOfTheApproximateGELU) {
  EXPECT_TRUE(contains(written_again(config_of("gemma")), "\"hidden_act\": \"gelu_pytorch_tanh\""));
  EXPECT_TRUE(contains(written_again(config_of("starcoder2", R"(, "hidden_act": "gelu_fast")")),
                       "\"hidden_act\": \"gelu_pytorch_tanh\""));
  const TransformerConfig gpt2 = transformer_config_of(
      R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 8, "vocab_size": 100})",
      "test");
  EXPECT_TRUE(contains(written_again(gpt2), "\"activation_function\": \"gelu_new\""));
  EXPECT_TRUE(contains(written_again(config_of("llama")), "\"hidden_act\": \"silu\""));
}

}  // namespace weft
