// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/scratch.h"
#include "weft/error.h"
#include "weft/hugging_face.h"
#include "weft/transformer.h"

namespace weft {
namespace {

const char* const kDeepSeekV3 =
    R"({"model_type":"deepseek_v3","architectures":["DeepseekV3ForCausalLM"],)"
    R"("aux_loss_alpha":0.001,)"
    R"("ep_size":1,"first_k_dense_replace":3,"hidden_act":"silu","hidden_size":7168,)"
    R"("intermediate_size":18432,"kv_lora_rank":512,"max_position_embeddings":163840,)"
    R"("moe_intermediate_size":2048,"moe_layer_freq":1,"n_group":8,"n_routed_experts":256,)"
    R"("n_shared_experts":1,"norm_topk_prob":true,"num_attention_heads":128,)"
    R"("num_experts_per_tok":8,"num_hidden_layers":61,"num_key_value_heads":128,)"
    R"("num_nextn_predict_layers":1,"q_lora_rank":1536,"qk_nope_head_dim":128,)"
    R"("qk_rope_head_dim":64,"rope_scaling":{"beta_fast":32,"beta_slow":1,"factor":40,)"
    R"("mscale":1.0,"mscale_all_dim":1.0,"original_max_position_embeddings":4096,"type":"yarn"},)"
    R"("rope_theta":10000,"routed_scaling_factor":2.5,"scoring_func":"sigmoid","seq_aux":true,)"
    R"("tie_word_embeddings":false,"topk_group":4,"topk_method":"noaux_tc","v_head_dim":128,)"
    R"("vocab_size":129280})";

const char* const kMixtral =
    R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,)"
    R"("num_attention_heads":32,"num_key_value_heads":8,"num_hidden_layers":32,)"
    R"("num_local_experts":8,"num_experts_per_tok":2,"vocab_size":32000,"rope_theta":1e6})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

/// The published numbers are 671 B and 37 B, 46.7 B and 12.9 B.
TEST(Sparse, ParametersAreThoseOfThePapers) {
  const ParameterCounts deepseek = parameters_of(transformer_config_of(kDeepSeekV3, "text"));
  EXPECT_EQ(deepseek.total, 671'026'404'352);
  EXPECT_EQ(deepseek.active, 37'552'282'624);
  const ParameterCounts mixtral = parameters_of(transformer_config_of(kMixtral, "text"));
  EXPECT_EQ(mixtral.total, 46'702'792'704);
  EXPECT_EQ(mixtral.active, 12'879'925'248);
}

TEST(Sparse, ConfigsAreReadBack) {
  for (const char* text : {kDeepSeekV3, kMixtral}) {
    const TransformerConfig config = transformer_config_of(text, "text");
    EXPECT_EQ(transformer_config_of(config_json(config), "written"), config);
  }
  const TransformerConfig config = transformer_config_of(kDeepSeekV3, "text");
  EXPECT_FALSE(config.is_sparse(2));
  EXPECT_TRUE(config.is_sparse(3));
  EXPECT_EQ(file_tensors(config).size(), 61 * 2 + 3 + 61 * 7 + 3 * 3 + 58 * (2 + 3 + 256 * 3));
}

TEST(Sparse, ConfigsThatDoNotFitAreRefused) {
  const auto error = [](const std::string& from, const std::string& to) {
    return error_of([&] { transformer_config_of(replaced(kDeepSeekV3, from, to), "text"); });
  };
  EXPECT_EQ(error("\"n_group\":8", "\"n_group\":7"),
            "model config: text: experts is 256, expected a multiple of 7, the groups of experts");
  EXPECT_EQ(error("\"num_experts_per_tok\":8", "\"num_experts_per_tok\":257"),
            "model config: text: experts of a token is 257, expected 1 to 256");
  EXPECT_EQ(error("noaux_tc", "greedy"),
            "model config: text: \"topk_method\" is \"greedy\", expected noaux_tc");
  for (const char* shared : {"-1", "1152921504606846976", "1048576"}) {
    EXPECT_EQ(
        error("\"n_shared_experts\":1", concat("\"n_shared_experts\":", shared)),
        concat("model config: text: \"n_shared_experts\" is ", shared, ", expected 0 to 1048575"));
  }
  EXPECT_EQ(error("\"n_shared_experts\":1", "\"n_shared_experts\":0"), "nothing");
  EXPECT_EQ(error("\"moe_intermediate_size\":2048", "\"moe_intermediate_size\":4294967296"),
            "model config: text: number of parameters is 1.44228e+18, expected at most 1e+15");
  EXPECT_EQ(error("\"hidden_act\":\"silu\"", "\"hidden_act\":\"gelu\""),
            "model config: text: feed-forward has experts, expected silu, a gate, no bias and no "
            "parallel residual");
  EXPECT_EQ(error("\"num_key_value_heads\":128", "\"num_key_value_heads\":64"),
            "model config: text: kv heads is 64, expected 128, the heads, of latents");
}

/// One layer too many is skipped with a warning, and a name that is not known is refused.
TEST(Sparse, LayersThatPredictFurtherTokensAreSkipped) {
  const TransformerConfig config = transformer_config_of(kDeepSeekV3, "text");
  EXPECT_TRUE(is_left_out(config, "model.layers.61.mlp.experts.0.up_proj.weight"));
  EXPECT_TRUE(is_left_out(config, "model.layers.61.eh_proj.weight"));
  EXPECT_FALSE(is_left_out(config, "model.layers.60.eh_proj.weight"));
  EXPECT_FALSE(is_left_out(config, "model.layers.x.weight"));
  EXPECT_FALSE(is_left_out(config, "scale"));
  EXPECT_FALSE(is_left_out(config, ""));
  EXPECT_FALSE(is_left_out(transformer_config_of(kMixtral, "text"), "scale"));

  const Scratch scratch;
  scratch.write_safetensors(
      "model.safetensors",
      R"({"model.layers.61.shared_head.norm.weight":{"dtype":"F32","shape":[1],)"
      R"("data_offsets":[0,4]},"model.layers.61.eh_proj.weight":{"dtype":"F32","shape":[1],)"
      R"("data_offsets":[4,8]}})",
      std::string(8, '\0'));
  std::vector<std::string> warnings;
  const WarningHandler before =
      set_warning_handler([&](const std::string& sentence) { warnings.push_back(sentence); });
  StateDict none;
  const std::string error = error_of([&] { load_hugging_face(none, scratch.root(), config); });
  set_warning_handler(before);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(has(warnings[0], "skipped 2 tensors of layers that predict further tokens"));
  EXPECT_NE(error.find("is missing"), std::string::npos) << error;
}

}  // namespace weft
