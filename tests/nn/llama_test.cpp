// SPDX-License-Identifier: Apache-2.0
#include "weft/transformer.h"

#include <gtest/gtest.h>

#include "tests/support/scratch.h"
#include "weft/ops.h"

namespace weft {

static int64_t elements_of(const Module& module) {
  int64_t elements = 0;
  for (const ParameterPtr& parameter : module.parameters())
    elements += parameter->shape().product();
  return elements;
}

TEST(Llama, PresetsHaveTheirSizes) {
  // embedding and head + layers * (q, o + k, v + gate, up, down + norms) + norm
  EXPECT_EQ(elements_of(TransformerModel(transformer_config("tiny"))),
            2 * 256 * 256 + 4 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 704 * 256 + 2 * 256) + 256);
  EXPECT_EQ(elements_of(TransformerModel(transformer_config("small"))),
            2 * 4096 * 512 + 8 * (2 * 512 * 512 + 2 * 256 * 512 + 3 * 1408 * 512 + 2 * 512) + 512);
}

TEST(Llama, CountsTheOperationsOfATokenAsPaLMDoes) {
  TransformerConfig config = transformer_config("tiny");
  const int64_t blocks = 4 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 704 * 256 + 2 * 256) + 256;
  const int64_t table = 256 * 256, attention = 12 * 4 * 256 * 100;
  const auto expected = static_cast<double>(6 * (blocks + table) + attention);
  EXPECT_EQ(training_operations_a_token(config, 100), expected);
  config.tied = true;  // the table is multiplied as the head
  EXPECT_EQ(training_operations_a_token(config, 100), expected);
  config.tied = false;
  config.head_dim = 32;  // projections and scores of half the width
  EXPECT_EQ(training_operations_a_token(config, 100),
            expected - 6 * 4 * (256 * 256 + 128 * 256) - attention / 2);
}

TEST(Llama, HasHuggingFacesNames) {
  TransformerConfig config = transformer_config("tiny");
  config.layers = 1;
  std::vector<std::string> names;
  for (const NamedParameter& named : TransformerModel(config).named_parameters())
    names.push_back(named.name());
  EXPECT_EQ(
      names,
      (std::vector<std::string>{
          "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
          "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
          "model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.gate_proj.weight",
          "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
          "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
          "model.norm.weight", "lm_head.weight"}));
}

TEST(Llama, ReadsAHuggingFaceConfig) {
  const Scratch scratch;
  const std::string path = scratch.write("config.json", R"({"model_type": "llama",
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 1000, "rms_norm_eps": 1e-6, "rope_theta": 500000,
    "max_position_embeddings": 8192, "tie_word_embeddings": true, "initializer_range": 0.1,
    "rope_scaling": null, "hidden_act": "silu", "attention_bias": false, "bos_token_id": 1})");
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary, max_sequence, rope_theta, norm_eps
  TransformerConfig expected{64, 3, 8, 2, 8, 96, 1000, 8192, 500000, 1e-6};
  expected.tied = true;
  expected.deviation = 0.1;
  EXPECT_EQ(transformer_config(path), expected);
  EXPECT_EQ(transformer_config(scratch.root()), expected);
}

/// The minimal contents of a config.json, followed by `more`.
static std::string config_text(const std::string& more, const std::string& without = "") {
  std::string text;
  for (const char* entry :
       {R"("hidden_size": 64)", R"("num_hidden_layers": 3)", R"("num_attention_heads": 8)",
        R"("intermediate_size": 96)", R"("vocab_size": 1000)"}) {
    if (!without.empty() && std::string_view(entry).find(without) != std::string_view::npos)
      continue;
    text += (text.empty() ? "{" : ", ") + std::string(entry);
  }
  return text + more + "}";
}

TEST(Llama, TakesHuggingFacesDefaults) {
  const Scratch scratch;
  const TransformerConfig config =
      transformer_config(scratch.write("config.json", config_text("")));
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_FALSE(config.tied);
  const auto rope =
      config_text(R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 7000.0})");
  EXPECT_EQ(transformer_config(scratch.write("config.json", rope)).rope_theta, 7000);
}

TEST(Llama, NamesWhatIsWrongInAConfig) {
  const Scratch scratch;
  struct Case {
    std::string text, message;
  };
  std::string families;
  for (const std::string& name : transformer_families()) {
    families += (families.empty() ? "" : ", ") + name;
  }
  EXPECT_NE(families.find("llama, mistral, mixtral"), std::string::npos) << families;
  const Case cases[] = {
      {config_text("", "vocab_size"), "the key \"vocab_size\" is missing"},
      {config_text(R"(, "rope_theta": "big")"), "\"rope_theta\" is string, not a number"},
      {config_text(R"(, "vocab_size": 4.5)", "vocab_size"),
       "\"vocab_size\" is a fraction, not an integer"},
      {config_text(R"(, "vocab_size": 1e99)", "vocab_size"),
       "\"vocab_size\" is a fraction, not an integer"},
      {config_text(R"(, "vocab_size": 18446744073709551615)", "vocab_size"),
       "\"vocab_size\" is 18446744073709551615, which is too large"},
      {config_text(R"(, "vocab_size": -5)", "vocab_size"),
       "\"vocab_size\" must be above 0, got -5"},
      {config_text(R"(, "num_attention_heads": 0)", "num_attention_heads"),
       "\"num_attention_heads\" must be above 0, got 0"},
      {config_text(R"(, "tie_word_embeddings": 1)"),
       "\"tie_word_embeddings\" is number, not true or false"},
      {config_text(R"(, "num_key_value_heads": 3)"),
       "heads is 8, expected a multiple of 3, the kv heads"},
      {config_text(R"(, "num_attention_heads": 7)", "num_attention_heads"),
       "hidden_size 64 is no multiple of 7 heads, and there is no \"head_dim\""},
      {config_text(R"(, "head_dim": 5)"), "head dim is 5, expected an even number"},
      {config_text(R"(, "hidden_act": "mish")"),
       "\"hidden_act\" is \"mish\", expected one of gelu, gelu_fast, gelu_new, gelu_pytorch_tanh, "
       "relu, silu, swish"},
      {config_text(R"(, "attention_bias": "yes")"),
       "\"attention_bias\" is string, not true or false"},
      {config_text(R"(, "model_type": "rwkv")"),
       "\"model_type\" is \"rwkv\", expected one of " + families},
      {config_text(R"(, "model_type": "gpt2")"), "the key \"n_embd\" is missing"},
      {config_text(R"(, "nosuch": 3)"),
       "the key \"nosuch\" is not understood, expected none that may change results"},
      {config_text(R"(, "rope_scaling": {"type": "half", "factor": 2.0})"),
       "\"rope_scaling\": \"rope_type\" is \"half\", expected one of default, dynamic, linear, "
       "llama3, longrope, su, yarn"},
      {config_text(R"(, "rope_parameters": {"rope_type": "llama3"})"),
       "\"rope_parameters\": the key \"factor\" is missing"},
      {config_text(R"(, "rope_parameters": {"rope_type": "linear", "factor": 2, "nosuch": 1})"),
       "\"rope_parameters\": the key \"nosuch\" is not understood, expected none that may change "
       "results"},
      {config_text(R"(, "rope_scaling": 2)"), "\"rope_scaling\" is number, not an object"},
      {config_text(R"(, "attention_dropout": 1.5)"), "dropout is 1.5, expected one in [0, 1)"},
      {config_text(R"(, "quantization_config": {})"),
       "\"quantization_config\" is unsupported unless its \"quant_method\" is \"fp8\""},
      {config_text(R"(, "rope_theta": 0)"), "rope theta is 0, expected a finite number above 0"},
  };
  for (const Case& c : cases) {
    const std::string path = scratch.write("config.json", c.text);
    EXPECT_EQ(error_of([&] { transformer_config(path); }),
              "model config: " + path + ": " + c.message);
  }
}

TEST(Llama, NamesAConfigThatIsNotThere) {
  EXPECT_EQ(error_of([] { transformer_config("large"); }),
            "model config: \"large\" does not exist, expected tiny, small or a file");
  const Scratch scratch;
  EXPECT_NE(error_of([&] { transformer_config(scratch.root()); }).find("config.json"),
            std::string::npos);
  const std::string empty = scratch.write("empty.json", "");
  EXPECT_EQ(error_of([&] { transformer_config(empty); }),
            "model config: " + empty + " is empty, expected a JSON object");
}

TEST(Llama, RefusesSizesThatDoNotFit) {
  const std::pair<void (*)(TransformerConfig&), const char*> cases[] = {
      {[](auto& c) { c.kv_heads = 3; }, "heads is 4, expected a multiple of 3, the kv heads"},
      {[](auto& c) { c.ffn = 0; }, "ffn is 0, expected 1 to 2147483647"},
      {[](auto& c) { c.layers = 1'000'000; }, "layers is 1000000, expected 1 to 10000"},
      {[](auto& c) { c.expert_chunks = 0; }, "expert chunks must be at least 1, got 0"},
      {[](auto& c) { c.expert_chunks = 2; },
       "expert chunks is 2, expected 1 of a model without experts"},
      {[](auto& c) {
         c.layers = 1000;
         c.vocabulary = c.dim = c.ffn = (int64_t{1} << 31) - 1;
       },
       "number of parameters is 1.38443e+22, expected at most 1e+15"},
  };
  for (const auto& [change, wrong] : cases) {
    TransformerConfig config = transformer_config("tiny");
    change(config);
    EXPECT_EQ(error_of([&] { TransformerModel{config}; }), std::string("model: ") + wrong);
  }
}

TEST(Llama, RefusesIdsThatDoNotFit) {
  TransformerConfig config = transformer_config("tiny");
  config.max_sequence = 4;
  TransformerModel llama(config);
  EXPECT_EQ(error_of([&] { llama(zeros({3}, {.dtype = i64})); }),
            "model: shape of ids is [3], expected [batch, sequence]");
  EXPECT_EQ(error_of([&] {
              llama(zeros({1, 5}, {.dtype = i64}));
            }),
            "model: sequence length is 5, expected at most 4");
  KeyValueCache cache{.context = 8, .position = 4};
  EXPECT_EQ(error_of([&] {
              llama.decode(zeros({1, 1}, {.dtype = i64}), cache);
            }),
            "model: sequence length is 5, expected at most 4");
}

TEST(Llama, RefusesMasksThatDoNotFit) {
  TransformerConfig config = transformer_config("tiny");
  config.causal = false;
  TransformerModel encoder(config);
  const Tensor ids = zeros({2, 3}, {.dtype = i64});
  EXPECT_EQ(error_of([&] {
              encoder(Tensors{ids, ones({2, 3})});
            }),
            "model: dtype of the mask is f32, expected bool; an encoder takes no segments");
  EXPECT_EQ(error_of([&] {
              encoder(Tensors{ids, ones({1, 3}, {.dtype = boolean})});
            }),
            "model: shape of the mask is [1, 3], expected that of the ids, [2, 3]");
}

TEST(Llama, PlansWithoutMemory) {
  TransformerModel llama(transformer_config("small"));
  const int64_t before = memory_statistics().total.current;
  const Tensor logits = llama(zeros({2, 16}, {.dtype = i64, .device = meta}));
  EXPECT_EQ(logits.shape(), (Shape{2, 16, 4096}));
  EXPECT_EQ(memory_statistics().total.current, before);
}

}  // namespace weft
