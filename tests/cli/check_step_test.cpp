// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
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

  /// A copy of a fixture with other names or elements.
  std::string changed(const std::string& name, const std::string& to,
                      const std::function<void(nlohmann::ordered_json&, std::string&)>& change) {
    const std::string bytes = bytes_in(kFolder + name + ".safetensors");
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    auto header = nlohmann::ordered_json::parse(bytes.substr(8, length));
    std::string data = bytes.substr(8 + length);
    change(header, data);
    return scratch_.write_safetensors(to + ".safetensors", header.dump(), data);
  }
  /// Adds a tensor of whole numbers or of one float.
  static void add(nlohmann::ordered_json& header, std::string& data, const std::string& name,
                  const char* dtype, const std::vector<int64_t>& shape, const std::string& bytes) {
    header[name] = {{"dtype", dtype},
                    {"shape", shape},
                    {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
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

TEST_F(CheckStep, RefusesWhatItWouldNotCompare) {
  const auto against = [&](const std::string& to, const auto& change) {
    return check("--against " + changed("right", to, change));
  };
  const auto renamed = [](const char* kind, const std::string& with) {
    return [=](nlohmann::ordered_json& header, std::string&) {
      nlohmann::ordered_json made;
      for (const auto& [name, value] : header.items()) {
        const bool is_of_kind = name.starts_with(kind);
        made[is_of_kind ? kind + with + name.substr(std::strlen(kind)) : name] = value;
      }
      header = made;
    };
  };
  // As of DDP, torch.compile, and of any module around.
  for (const char* with : {"module.", "_orig_mod."}) {
    expect(against("gradients", renamed("grad.", with)), 1, concat("not compared: \"grad.", with));
    expect(against("outputs", renamed("output.", with)), 1,
           concat("and the other tensors of output.* have no module here"));
  }
  expect(against("more",
                 [](auto& header, auto& data) {
                   add(header, data, "grad.model.layers.0.self_attn.o_proj.gain", "F32", {1},
                       std::string(4, '\0'));
                 }),
         1, "not compared: \"grad.model.layers.0.self_attn.o_proj.gain\" is of no parameter here");
  expect(against("unknown",
                 [](auto& header, auto& data) {
                   add(header, data, "hidden", "F32", {1}, std::string(4, '\0'));
                 }),
         1, "not compared: \"hidden\" is of an unknown kind");
}

TEST_F(CheckStep, SeesWhatIsNoNumber) {
  const auto with_nan = [&](const std::string& tensor) {
    return check("--against " + changed("right", "nan", [&](auto& header, auto& data) {
                   const size_t at = header.at(tensor).at("data_offsets")[0];
                   const float nan = std::nanf("");
                   std::memcpy(data.data() + at, &nan, sizeof nan);
                 }));
  };
  for (const char* tensor : {"loss", "logits"}) {
    expect(with_nan(tensor), 1, concat("first difference: ", tensor, " differs by nan"));
  }
  expect(with_nan("grad.model.norm.weight"), 1,
         "first difference: gradient of model.norm.weight differs by nan");
}

TEST_F(CheckStep, RefusesABatchOfWhichItWouldLeaveOutAPart) {
  const auto numbers = [](const std::vector<int64_t>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), 8 * values.size());
  };
  const auto with = [&](const std::string& name, const std::vector<int64_t>& row) {
    const std::string path = scratch_.path("given.safetensors");
    nlohmann::ordered_json header;
    std::string data;
    add(header, data, "ids", "I64", {1, 3}, numbers({1, 2, 3}));
    add(header, data, name, "I64", {1, 3}, numbers(row));
    scratch_.write_safetensors("given.safetensors", header.dump(), data);
    return run_weft("check-step " + kFolder + " --batch " + path);
  };
  expect(with("attention_mask", {1, 1, 1}), 0, "loss");
  expect(with("position_ids", {0, 1, 2}), 0, "loss");
  expect(with("token_type_ids", {0, 0, 0}), 0, "loss");
  const std::string path = scratch_.path("given.safetensors");
  const std::string rest = "; a step has no padding, and \"segments\" number packed documents";
  expect_refused(with("attention_mask", {1, 1, 0}), "--batch: element 2 of \"attention_mask\" of " +
                                                        path + " is 0, expected 1" + rest);
  expect_refused(with("position_ids", {0, 1, 0}),
                 "--batch: element 2 of \"position_ids\" of " + path + " is 0, expected 2" + rest);
  expect_refused(with("weights", {1, 1, 1}),
                 "--batch: " + path +
                     " has the tensor \"weights\", expected ids, input_ids, targets, labels, "
                     "segments");
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
                 "--batch: " + right +
                     " has the tensor \"grad.model.embed_tokens.weight\", expected ids, "
                     "input_ids, targets, labels, segments");
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
