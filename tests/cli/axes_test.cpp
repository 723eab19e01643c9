// SPDX-License-Identifier: Apache-2.0

// `weft train` over all axes of one mesh: losses of one rank, and a checkpoint that goes on with
// another mesh.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"

namespace weft::tests {
namespace {

/// In the order that a mesh has them.
constexpr const char* kAxes[] = {"pp", "replicate", "shard", "cp", "ep", "tp"};

/// A decoder with experts, of odd sizes.
constexpr const char* kExperts =
    R"({"model_type":"mixtral","architectures":["MixtralForCausalLM"],"hidden_size":24,)"
    R"("intermediate_size":20,"num_hidden_layers":3,"num_attention_heads":4,)"
    R"("num_key_value_heads":2,"vocab_size":256,"num_local_experts":5,"num_experts_per_tok":2,)"
    R"("max_position_embeddings":64,"rms_norm_eps":1e-5,"output_router_logits":true,)"
    R"("router_aux_loss_coef":0.02,"tie_word_embeddings":false})";

/// The axes of a mesh of 8 ranks, 2 along each of three axes.
std::string mesh_of(int a, int b, int c) {
  return concat(kAxes[a], "=2,", kAxes[b], "=2,", kAxes[c], "=2");
}

/// All 20, or six that have each pair of axes at least once.
std::vector<std::string> meshes() {
  std::vector<std::string> all;
  if (std::getenv("WEFT_ALL_MESHES") == nullptr) {
    return {mesh_of(0, 3, 5), mesh_of(0, 3, 4), mesh_of(1, 4, 5),
            mesh_of(2, 4, 5), mesh_of(0, 1, 2), mesh_of(1, 2, 3)};
  }
  for (int a = 0; a < 6; ++a) {
    for (int b = a + 1; b < 6; ++b) {
      for (int c = b + 1; c < 6; ++c) all.push_back(mesh_of(a, b, c));
    }
  }
  return all;
}

std::string strategy_of(const std::string& mesh) {
  const bool replicates = mesh.find("replicate") != mesh.npos;
  const bool shards = mesh.find("shard") != mesh.npos;
  return replicates ? (shards ? "hsdp" : "ddp") : "full_shard";
}

class Axes : public testing::Test {
 protected:
  Axes() {
    common_ = concat("train --data ", scratch_.write("text", repeating_text(200)), " --model ",
                     scratch_.write("experts.json", kExperts),
                     " --seq 15 --batch 8 --accumulate 2 --threads 1 --schedule constant ");
  }
  /// The numbers of the steps, and their losses.
  std::map<int64_t, double> losses(const std::string& flags) const {
    const std::string metrics = scratch_.path("metrics.jsonl");
    std::filesystem::remove(metrics);
    expect(0, concat(common_, flags, " --metrics ", metrics), "loss");
    std::map<int64_t, double> all;
    for (const auto& line : metrics_in(metrics)) all[line["step"]] = line["loss"];
    return all;
  }

  Scratch scratch_;
  std::string common_;
};

TEST_F(Axes, EachPairTrainsAsOneRank) {
  const std::map<int64_t, double> expected = losses("--steps 20 --mesh dp=1");
  ASSERT_EQ(expected.size(), 20U);
  EXPECT_LT(expected.at(20), expected.at(1) - 0.5);
  for (const std::string& mesh : meshes()) {
    const auto made = losses(concat("--steps 20 --mesh ", mesh, " --strategy ", strategy_of(mesh)));
    ASSERT_EQ(made.size(), 20U) << mesh;
    for (const auto& [step, loss] : made) {
      EXPECT_NEAR(loss, expected.at(step), 1e-4 * expected.at(step)) << mesh << ' ' << step;
    }
  }
}

TEST_F(Axes, StagesReportTheExpertsOfAll) {
  const auto experts = [&](const std::string& flags) {
    const std::string metrics = scratch_.path("experts.jsonl");
    std::filesystem::remove(metrics);
    expect(0, concat(common_, "--steps 1 --metrics ", metrics, ' ', flags), "loss");
    return metrics_in(metrics).at(0)["experts"];
  };
  const nlohmann::json expected = experts("--mesh dp=1");
  ASSERT_EQ(expected["load"].size(), 3U);
  for (const char* flags : {"--mesh pp=3", "--mesh pp=2,ep=2 --pipeline-schedule zb"}) {
    const nlohmann::json made = experts(flags);
    EXPECT_EQ(made["load"], expected["load"]) << flags;
    EXPECT_NEAR(made["balance_loss"], expected["balance_loss"].get<double>(), 1e-4) << flags;
  }
}

TEST_F(Axes, AKilledRunGoesOnWithOtherAxes) {
  const std::map<int64_t, double> expected = losses("--steps 40 --mesh dp=1");
  const std::string run = scratch_.path("run"), output = scratch_.path("output");
  const Outcome killed = run_command(
      concat(WEFT_PROGRAM, ' ', common_, "--save ", run, " --save-every 3 --steps 40 --mesh ",
             mesh_of(0, 3, 4), " > ", output, " 2>&1 & pid=$!; for i in $(seq 600); do ls -d ", run,
             "/step-00000006* > /dev/null 2>&1 && break; sleep 0.05; done; kill -9 $pid; ",
             "wait $pid; echo killed; cat ", output));
  ASSERT_NE(killed.text.find("killed"), std::string::npos) << killed.text;
  const std::string copy = scratch_.path("copy");
  std::filesystem::copy(run, copy, std::filesystem::copy_options::recursive);
  for (const auto& [mesh, from] : {std::pair("pp=3", run), {"cp=3", copy}}) {
    const auto made = losses(concat("--resume ", from, " --steps 40 --mesh ", mesh));
    ASSERT_FALSE(made.empty()) << mesh << killed.text;
    EXPECT_GT(made.begin()->first, 3) << mesh;
    for (const auto& [step, loss] : made) {
      EXPECT_NEAR(loss, expected.at(step), 2e-4 * expected.at(step)) << mesh << ' ' << step;
    }
  }
}

TEST_F(Axes, RefuseWhatIsNotPossible) {
  const std::pair<const char*, const char*> cases[] = {
      {"--mesh pp=4,cp=2",
       "--mesh pp=4,cp=2: number of stages is 4, expected at most 3, the layers of the model"},
      {"--mesh ep=8", "--mesh ep=8: axis ep has 8 ranks, expected at most 5, one for each expert"},
      {"--mesh ep=2,shard=2,pp=2", "axis ep is before one that carries rows or cp"},
      {"--mesh replicate=2,pp=2,tp=2 --strategy hsdp",
       "has 1 axis that carries rows, expected 2, those of --strategy hsdp"},
      {"--mesh pp=2 --pipeline-split model.layers.1,model.layers.2",
       "--pipeline-split: number of modules is 2, expected 1, the first ones of all stages but the "
       "first"},
      {"--mesh pp=2 --pipeline-split lm_head",
       "pipeline: first module of stage 1 is \"lm_head\", expected one of model.layers.1 to "
       "model.layers.2"},
      {"--mesh dp=2 --pipeline-split model.layers.1",
       "--mesh is dp=2, expected one with an axis pp"},
  };
  for (const auto& [flags, words] : cases) expect(2, concat(common_, flags), words);
}

TEST_F(Axes, StagesBeginWhereTheyAreNamed) {
  const std::map<int64_t, double> expected = losses("--steps 2 --mesh dp=1");
  const auto made = losses("--steps 2 --mesh pp=2 --pipeline-split model.layers.1");
  for (const auto& [step, loss] : made) EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss);
}

}  // namespace
}  // namespace weft::tests
