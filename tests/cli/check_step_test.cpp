// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"

namespace weft::tests {
namespace {

/// Compares with steps of PyTorch, right and with a fault: tests/reference/make_check_step.py.
class CheckStep : public testing::Test {
 protected:
  static inline const std::string kFolder = WEFT_SOURCE_DIR "/tests/reference/check_step/";

  static Outcome check(const std::string& flags, const std::string& batch = "batch") {
    return run_weft(
        concat("check-step ", kFolder, " --batch ", kFolder, batch, ".safetensors ", flags));
  }
  static void expect_refused(const Outcome& outcome, const std::string& sentence) {
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.text.substr(0, outcome.text.find('\n')), "weft: " + sentence);
  }

  Scratch scratch_;
};

TEST_F(CheckStep, EqualsTheStepOfPyTorch) {
  const Outcome outcome = check("--tolerance 1e-5 --against " + kFolder + "right.safetensors");
  expect(outcome, 0, "equal to");
  EXPECT_NE(outcome.text.find("gradient norm"), std::string::npos);
  EXPECT_NE(outcome.text.find("model.layers.2.self_attn.k_proj.bias"), std::string::npos);
}

TEST_F(CheckStep, NamesTheTensorOfEachFault) {
  const std::string layer = "model.layers.1.";
  const std::map<std::string, std::string> faults = {
      {"wrong_eps", "output of " + layer + "post_attention_layernorm differs"},
      {"transposed_weight", "output of " + layer + "self_attn.q_proj differs"},
      {"missing_bias_gradient",
       "gradient of " + layer + "self_attn.v_proj.bias is 0 in the reference"},
      {"mask_off_by_one", "input of " + layer + "self_attn.o_proj differs"},
      {"wrong_theta", "input of model.layers.0.self_attn.o_proj differs"},
      {"dropped_layer", "output of model.layers.2.input_layernorm is missing"},
      {"wrong_scale", "input of " + layer + "self_attn.o_proj differs"},
      {"wrong_tied_gradient", "gradient of model.embed_tokens.weight differs"},
      {"wrong_shift", "loss differs"},
      {"wrong_activation", "input of " + layer + "mlp.down_proj differs"}};
  for (const auto& [fault, words] : faults) {
    SCOPED_TRACE(fault);
    expect(check(concat("--against ", kFolder, fault, ".safetensors")), 1,
           "first difference: " + words);
  }
}

TEST_F(CheckStep, PrintsDigestsWithoutAReference) {
  const Outcome outcome = check("");
  expect(outcome, 0, "loss");
  EXPECT_EQ(outcome.text.find("equal to"), std::string::npos);
}

TEST_F(CheckStep, SaysWhatIsWrong) {
  const std::string batch = kFolder + "batch.safetensors";
  expect_refused(check("--against " + batch), "--against: " + batch +
                                                  " lacks the tensor \"loss\", expected a file of "
                                                  "examples/check_step_reference.py");
  const std::string right = kFolder + "right.safetensors";
  expect_refused(check("", "right"),
                 "--batch: " + right + " lacks the tensor \"ids\", expected [batch, sequence]");
  expect_refused(check("--device meta"), "--device is meta, expected cpu or cuda");
  scratch_.write_safetensors("flat.safetensors",
                             R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})",
                             std::string(8, '\0'));
  const std::string flat = scratch_.path("flat.safetensors");
  expect_refused(
      run_weft("check-step " + kFolder + " --batch " + flat),
      "--batch: \"ids\" of " + flat + " is i64 [1], expected integers [batch, sequence]");
  scratch_.write_safetensors("uneven.safetensors",
                             R"({"ids":{"dtype":"I64","shape":[1,2],"data_offsets":[0,16]},)"
                             R"("targets":{"dtype":"I64","shape":[2,1],"data_offsets":[16,32]}})",
                             std::string(32, '\0'));
  const std::string uneven = scratch_.path("uneven.safetensors");
  expect_refused(
      run_weft("check-step " + kFolder + " --batch " + uneven),
      "--batch: shape of targets in " + uneven + " is [2, 1], expected that of the ids, [1, 2]");
  expect(2, "check-step " + kFolder, "--batch is required");
}

}  // namespace
}  // namespace weft::tests
