// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"

namespace weft::tests {
namespace {

/// The config.json of DeepSeek-V3, as published.
const char* const kDeepSeekV3 =
    R"({"architectures":["DeepseekV3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,)"
    R"("aux_loss_alpha":0.001,"bos_token_id":0,"eos_token_id":1,"ep_size":1,)"
    R"("first_k_dense_replace":3,"hidden_act":"silu","hidden_size":7168,)"
    R"("initializer_range":0.02,"intermediate_size":18432,"kv_lora_rank":512,)"
    R"("max_position_embeddings":163840,"model_type":"deepseek_v3","moe_intermediate_size":2048,)"
    R"("moe_layer_freq":1,"n_group":8,"n_routed_experts":256,"n_shared_experts":1,)"
    R"("norm_topk_prob":true,"num_attention_heads":128,"num_experts_per_tok":8,)"
    R"("num_hidden_layers":61,"num_key_value_heads":128,"num_nextn_predict_layers":1,)"
    R"("pretraining_tp":1,"q_lora_rank":1536,"qk_nope_head_dim":128,"qk_rope_head_dim":64,)"
    R"("quantization_config":{"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8",)"
    R"("weight_block_size":[128,128]},"rms_norm_eps":1e-06,"rope_scaling":{"beta_fast":32,)"
    R"("beta_slow":1,"factor":40,"mscale":1.0,"mscale_all_dim":1.0,)"
    R"("original_max_position_embeddings":4096,"type":"yarn"},"rope_theta":10000,)"
    R"("routed_scaling_factor":2.5,"scoring_func":"sigmoid","seq_aux":true,)"
    R"("tie_word_embeddings":false,"topk_group":4,"topk_method":"noaux_tc",)"
    R"("torch_dtype":"bfloat16","transformers_version":"4.33.1","use_cache":true,)"
    R"("v_head_dim":128,"vocab_size":129280})";

class ExpertEstimate : public testing::Test {
 protected:
  ExpertEstimate() { scratch_.write("config.json", kDeepSeekV3); }
  std::string arguments(const std::string& flags) const {
    return concat("estimate --model ", scratch_.path(""), " --machine h100 --dtype bf16 ", flags);
  }
  nlohmann::json estimated(const std::string& flags) const {
    const Outcome outcome = run_weft(arguments(flags + " --json"));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    return nlohmann::json::parse(outcome.text);
  }

 private:
  Scratch scratch_;
};

TEST_F(ExpertEstimate, CountsTheParametersOfDeepSeekV3) {
  const nlohmann::json json = estimated("--mesh ep=64 --batch 64 --seq 4096");
  EXPECT_EQ(std::round(json["parameters"]["total"].get<double>() / 1e9), 671);
  EXPECT_EQ(std::round(json["parameters"]["multiplied"].get<double>() / 1e9), 37);
  // 6 operations a token and parameter that it is multiplied with, and those of attention.
  EXPECT_NEAR(json["flop"].get<double>() / (6 * 36.6e9 * 4096), 1.15, 0.15);
  const nlohmann::json& experts = json["experts"];
  EXPECT_EQ(experts["layers"], 58);
  // 4 experts a rank with three matrices, in f32.
  constexpr int64_t kParameters = int64_t{58} * 4 * 3 * 7168 * 2048 * 4;
  EXPECT_EQ(experts["parameter_bytes"], kParameters);
  // A rank computes 8 / 64 of all tokens and has 1 / 64 of them: tokens in bf16, 8 weights in f32.
  constexpr int64_t kRows = int64_t{64} * 4096 / 8 * 63 / 64;
  EXPECT_EQ(experts["dispatch_bytes_of_layer"], kRows * (7168 * 2 + 8 * 4));
  EXPECT_EQ(experts["combine_bytes_of_layer"], kRows * 7168 * 2);
  EXPECT_GT(experts["backward_bytes_of_layer"], 2 * kRows * 7168 * 2);
}

TEST_F(ExpertEstimate, TakesAnImbalance) {
  const std::string flags = "--mesh shard=2,ep=64 --batch 128 --seq 4096";
  const nlohmann::json even = estimated(flags), uneven = estimated(flags + " --imbalance 1.5");
  const double dispatch = even["experts"]["dispatch_bytes_of_layer"],
               more = uneven["experts"]["dispatch_bytes_of_layer"];
  EXPECT_NEAR(more / dispatch, 1.5, 1e-3);
  EXPECT_GT(uneven["flop"], even["flop"]);
  EXPECT_GT(uneven["peak_bytes"], even["peak_bytes"]);
  EXPECT_GT(uneven["seconds"]["total"], even["seconds"]["total"]);
  EXPECT_EQ(uneven["parameters"], even["parameters"]);
  const Outcome outcome = run_weft(arguments(flags + " --imbalance 0.5"));
  EXPECT_EQ(outcome.code, 2) << outcome.text;
}

/// Parts hide travelling tokens behind products, all but one part of them, and the bytes stay.
TEST_F(ExpertEstimate, PredictsChunks) {
  // There are so many tokens that gathering parameters does not bound the step.
  const std::string flags = "--mesh ep=64 --batch 256 --seq 4096";
  const nlohmann::json one = estimated(flags), two = estimated(flags + " --expert-chunks 2"),
                       four = estimated(flags + " --expert-chunks 4");
  const auto exposed = [](const nlohmann::json& json) {
    return json["experts"]["exposed_seconds"].get<double>();
  };
  EXPECT_EQ(one["experts"]["chunks"], 1);
  EXPECT_EQ(four["experts"]["chunks"], 4);
  EXPECT_LT(exposed(two), exposed(one));
  EXPECT_LT(exposed(four), exposed(two));
  EXPECT_GT(exposed(four), exposed(one) / 5);
  EXPECT_EQ(two["experts"]["exposed_seconds_of_one_chunk"], exposed(one));
  EXPECT_LT(exposed(one), one["experts"]["travel_seconds"].get<double>());
  EXPECT_EQ(two["experts"]["dispatch_bytes_of_layer"], one["experts"]["dispatch_bytes_of_layer"]);
  EXPECT_LT(two["seconds"]["total"].get<double>(), one["seconds"]["total"].get<double>());
  const Outcome outcome = run_weft(arguments(flags + " --expert-chunks 2"));
  EXPECT_TRUE(has(outcome.text, "exposed with --expert-chunks 2, "));
}

TEST_F(ExpertEstimate, PrintsExperts) {
  const Outcome outcome = run_weft(arguments("--mesh ep=64 --batch 64 --seq 4096 --imbalance 1.2"));
  EXPECT_EQ(outcome.code, 0);
  for (const char* text : {"671.03 B", "dispatch of a layer", "1.2 times the mean"}) {
    EXPECT_NE(outcome.text.find(text), std::string::npos) << text << " in\n" << outcome.text;
  }
}

}  // namespace
}  // namespace weft::tests
