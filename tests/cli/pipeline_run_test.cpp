// SPDX-License-Identifier: Apache-2.0

// `weft train` with an axis pp: the losses of a run without, and what is refused.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/cli/program.h"
#include "tests/support/processes.h"
#include "tests/support/scratch.h"
#include "weft/optimizer_named.h"

namespace weft::tests {
namespace {

class PipelineRun : public testing::Test {
 protected:
  void SetUp() override {
    text_ = scratch_.write("text", repeating_text(200));
    common_ = concat("train --data ", text_,
                     " --model tiny --seq 16 --batch 4 --accumulate 2 --threads 1 ");
  }
  std::vector<double> losses(const std::string& flags) const {
    const std::string metrics = scratch_.path("metrics.jsonl");
    std::filesystem::remove(metrics);
    expect(0, concat(common_, flags, " --metrics ", metrics), "loss");
    std::vector<double> all;
    for (const auto& line : metrics_in(metrics)) all.push_back(line["loss"]);
    return all;
  }

  Scratch scratch_;
  std::string text_, common_;
};

TEST_F(PipelineRun, LosesAsOneRankDoes) {
  const std::vector<double> expected = losses("--steps 4 --mesh dp=1");
  for (const char* flags :
       {"--mesh pp=2 --schedule 1f1b", "--mesh pp=2,tp=2 --pipeline-schedule zb",
        "--mesh pp=2,replicate=2 --strategy ddp --pipeline-schedule gpipe",
        "--mesh shard=2,pp=2 --pipeline-schedule interleaved"}) {
    const std::vector<double> made = losses(concat("--steps 4 ", flags));
    ASSERT_EQ(made.size(), 4U) << flags;
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(made[i], expected[i], 1e-4) << flags << i;
  }
}

TEST_F(PipelineRun, IsSavedByProcessesAndResumedByOneRank) {
  const std::vector<double> expected = losses("--steps 4 --schedule constant --mesh dp=1");
  const std::string run = scratch_.path("run");
  const std::string flags =
      concat(common_, "--schedule constant --save ", run, " --resume ", run, " --steps ");
  expect(0, concat("run -n 2 -- ", WEFT_PROGRAM, ' ', flags, "2 --mesh pp=2"), "% bubble");
  expect(0, concat(flags, "3 --mesh dp=2"), "resumed");
  const std::vector<double> last = losses(concat("--schedule constant --resume ", run,
                                                 " --steps 4 --mesh pp=2 --pipeline-schedule zb"));
  ASSERT_EQ(last.size(), 1U);
  EXPECT_NEAR(last[0], expected[3], 1e-4);
}

/// Stages draw unequal numbers of random values; checkpoints have one state of all.
TEST_F(PipelineRun, IsResumedAfterUnequalDraws) {
  const std::string model = scratch_.write(
      "gpt2.json",
      R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"n_embd":16,"n_layer":3,)"
      R"("n_head":2,"n_positions":64,"vocab_size":256,"layer_norm_epsilon":1e-5,)"
      R"("activation_function":"gelu_new","resid_pdrop":0.1,"embd_pdrop":0.1,"attn_pdrop":0.1,)"
      R"("tie_word_embeddings":true})");
  int number = 0;
  for (const std::string& flags :
       {concat("--mesh pp=2 --model ", model),
        // One rank has both stages of the tie.
        concat("--mesh pp=1 --pipeline-schedule interleaved --model ", model),
        std::string("--mesh pp=2,shard=2 --gradient-dtype int8"),
        std::string("--mesh pp=2,shard=2 --gradient-dtype bf16 --pipeline-schedule zb")}) {
    const std::string own = concat("train --data ", text_, " --seq 16 --batch 4 --accumulate 2 ",
                                   "--threads 1 --schedule constant ", flags);
    const std::string run = scratch_.path(concat("run", number++));
    const std::string whole = scratch_.path("whole.jsonl"), second = scratch_.path("second.jsonl");
    std::filesystem::remove(whole);
    std::filesystem::remove(second);
    expect(0, concat(own, " --steps 3 --metrics ", whole), "loss");
    expect(0, concat(own, " --steps 2 --save ", run), "saved");
    expect(0, concat(own, " --steps 3 --save ", run, " --resume ", run, " --metrics ", second),
           "resumed from");
    const auto expected = metrics_in(whole), made = metrics_in(second);
    ASSERT_EQ(made.size(), 1U);
    EXPECT_EQ(made[0]["loss"], expected[2]["loss"]) << flags;
  }
}

TEST_F(PipelineRun, UpdatesByEveryOptimizer) {
  for (const std::string& name : optimizer_names()) {
    if (kSanitized && name != "adamw" && name != "muon") continue;
    const std::string run = scratch_.path(name);
    const std::string own = concat(common_, "--mesh pp=2 --schedule constant --optimizer ", name);
    const std::vector<double> expected =
        losses(concat("--mesh dp=1 --schedule constant --steps 3 --optimizer ", name));
    expect(0, concat(own, " --steps 2 --save ", run), "saved");
    const std::vector<double> last =
        losses(concat("--mesh pp=2 --schedule constant --steps 3 --optimizer ", name, " --save ",
                      run, " --resume ", run));
    ASSERT_EQ(last.size(), 1U) << name;
    EXPECT_NEAR(last[0], expected[2], 1e-3) << name;
  }
}

TEST_F(PipelineRun, PredictsThatRepeatedBlocksLeaveNoWeightsToWait) {
  const auto bubble = [&](const std::string& flags) {
    const std::string text = run_weft(concat(common_, "--steps 1 --mesh pp=2 ", flags)).text;
    const size_t end = text.find(" % bubble predicted");
    return end == std::string::npos ? -1 : std::stod(text.substr(text.rfind(' ', end - 1)));
  };
  const double zb = bubble("--pipeline-schedule zb");
  EXPECT_GT(zb, 0);
  const std::string full = "--activation-checkpointing full --pipeline-schedule ";
  EXPECT_GT(bubble(full + "zb"), zb + 1);
  EXPECT_NEAR(bubble(full + "zb"), bubble(full + "1f1b"), 0.11);
}

TEST_F(PipelineRun, RefusesWhatDoesNotFit) {
  const std::pair<const char*, const char*> cases[] = {
      {"--mesh dp=1 --schedule 1f1b",
       "--mesh is dp=1, expected one with an axis pp for the schedule 1f1b of a pipeline"},
      {"--mesh pp=2 --sample 3",
       "--sample is given with the axis pp of --mesh pp=2, expected one of them"},
      {"--mesh pp=2 --offload parameters=disk:.",
       "--offload parameters=disk is given with the axis pp of --mesh pp=2, expected one of them"},
      {"--mesh pp=2 --offload gradients=disk:.", "--offload gradients=disk is given with"},
      {"--mesh pp=2 --offload state=disk:.", "--offload state=disk is given with"},
      {"--mesh pp=2 --memory 1MB", "--memory"},
      {"--mesh pp=2 --pipeline-schedule interleaved --pipeline-chunks 3",
       "--mesh pp=2: number of stages is 6, expected at most 4, the layers of the model"},
      {"--mesh pp=2 --schedule dualpipe", "--schedule"},
      {"--mesh pp=2 --pipeline-chunks 0", "--pipeline-chunks is 0, expected a whole number from 1"},
  };
  for (const auto& [flags, words] : cases) expect(2, concat(common_, flags), words);
  expect(2, "estimate --mesh pp=2 --schedule --machine h100",
         "--schedule is given with the axis pp of --mesh pp=2, expected one of them");
}

TEST_F(PipelineRun, ChoosesForTheRankThatHoldsTheMost) {
  const std::string flags = "--steps 2 --mesh pp=2 --pipeline-schedule gpipe ";
  const std::vector<double> expected = losses(flags);
  expect(0, concat(common_, flags, "--memory 64MiB"), "bytes a rank; ");
  const std::vector<double> made = losses(flags + "--activation-checkpointing budget=64MiB");
  for (size_t i = 0; i < made.size(); ++i) EXPECT_NEAR(made[i], expected[i], 1e-5);
}

/// Predictions are bounds: activations count the most of each micro-step.
TEST_F(PipelineRun, PredictsTheMemoryThatItTakes) {
  for (const char* schedule : {"1f1b", "gpipe", "interleaved", "zb"}) {
    if (kSanitized && schedule != std::string_view("zb")) continue;
    const std::string flags = concat("--seq 64 --batch 8 --accumulate 4 --mesh pp=2,shard=2 ",
                                     "--pipeline-schedule ", schedule);
    const std::string metrics = scratch_.path("memory.jsonl");
    std::filesystem::remove(metrics);
    expect(0, concat(common_, flags, " --steps 2 --metrics ", metrics), "loss");
    const nlohmann::json measured = metrics_in(metrics).at(1);
    const Outcome outcome = run_weft(concat("estimate --model tiny --machine h100 --json ", flags));
    const nlohmann::json predicted = nlohmann::json::parse(outcome.text);
    for (const char* purpose : {"parameters", "optimizer"}) {
      EXPECT_EQ(measured["peak_bytes_of"][purpose], predicted["peak_bytes_of"][purpose]);
    }
    const double all =
        measured["peak_bytes"].get<double>() - measured["peak_bytes_of"]["other"].get<double>();
    EXPECT_LE(all, predicted["peak_bytes"].get<double>()) << schedule;
    EXPECT_GE(all, 0.7 * predicted["peak_bytes"].get<double>()) << schedule;
  }
}

/// Llama 3 405B as its paper trains it, on 8 of its replicas.
TEST_F(PipelineRun, IsEstimatedForThousandsOfRanks) {
  const std::string model = scratch_.write(
      "llama405b.json",
      R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":16384,)"
      R"("intermediate_size":53248,"num_hidden_layers":126,"num_attention_heads":128,)"
      R"("num_key_value_heads":8,"vocab_size":128256,"max_position_embeddings":131072,)"
      R"("rms_norm_eps":1e-5,"rope_theta":500000.0,"hidden_act":"silu",)"
      R"("tie_word_embeddings":false})");
  const auto estimated = [&](const std::string& flags) {
    const Outcome outcome =
        run_weft(concat("estimate --json --machine h100 --dtype bf16 --model ", model, ' ', flags));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    return nlohmann::json::parse(outcome.text);
  };
  const std::string mesh = "--mesh pp=16,shard=32,tp=8 --batch 1024 --accumulate 32 --seq 8192";
  const nlohmann::json json = estimated(mesh);
  EXPECT_EQ(json["ranks"], 4096);
  EXPECT_EQ(json["parameters"]["total"], 405853388800);
  const nlohmann::json& pipeline = json["pipeline"];
  EXPECT_EQ(pipeline["stages"], 16);
  // (p - 1) / (m + p - 1) of stages that were equal; the last one has the head.
  EXPECT_NEAR(pipeline["bubble"].get<double>(), 15.0 / 47, 0.05);
  // A rank of the first stage receives 32 gradients of a row in bf16, of which tp has an eighth.
  int64_t bytes = 0;
  for (const auto& axis : json["traffic"]) {
    if (axis["axes"] == "pp") bytes += axis["bytes"].get<int64_t>();
  }
  EXPECT_EQ(bytes, int64_t{32} * 8192 * 16384 * 2 / 8);
  const std::vector<int64_t> peaks = pipeline["peak_bytes_of_positions"];
  ASSERT_EQ(peaks.size(), 16U);
  // 1F1B holds the most microbatches on the first rank.
  EXPECT_GT(peaks[1], peaks[8]);
  EXPECT_GT(peaks[8], peaks[14]);
  const nlohmann::json interleaved =
      estimated(mesh + " --pipeline-schedule interleaved --pipeline-chunks 4");
  EXPECT_LT(interleaved["pipeline"]["bubble"], pipeline["bubble"]);
  const nlohmann::json longer =
      estimated("--mesh pp=16,shard=2,cp=16,tp=8 --batch 64 --accumulate 32 --seq 131072 --rank 5");
  std::set<std::string> axes;
  for (const auto& axis : longer["traffic"]) axes.insert(axis["axes"]);
  EXPECT_TRUE(axes.contains("cp") && axes.contains("pp") && axes.contains("tp"));
}

}  // namespace
}  // namespace weft::tests
