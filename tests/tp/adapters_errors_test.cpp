// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/adapters.h"
#include "weft/extend/saved_model.h"
#include "weft/fsdp.h"
#include "weft/hugging_face.h"
#include "weft/moe.h"
#include "weft/ops/factories.h"
#include "weft/peft.h"
#include "weft/tensor_parallel.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
const std::string kReference = WEFT_SOURCE_DIR "/tests/reference/";

TransformerConfig grouped() { return transformer_config(kReference + "grouped"); }

void expect_error(const std::string& words, const std::function<void()>& run) {
  try {
    run();
    ADD_FAILURE() << "no error: " << words;
  } catch (const std::invalid_argument& error) {
    EXPECT_TRUE(has(error.what(), words));
  }
}

void expect_refused(const AdapterOptions& options, const std::string& words,
                    const TransformerConfig& config = grouped()) {
  TransformerModel model(config);
  expect_error(words, [&] { add_adapters(model, options); });
  for (const ParameterPtr& parameter : model.parameters()) EXPECT_TRUE(parameter->is_trainable());
}

TEST(AdaptersErrors, NameTheOption) {
  expect_refused({.rank = 0}, "add_adapters: rank must be at least 1, got 0");
  expect_refused({.alpha = NAN}, "add_adapters: alpha is nan, expected a finite number");
  expect_refused({.dropout = 1}, "add_adapters: dropout is 1, expected one in [0, 1)");
  expect_refused({.targets = {}},
                 "add_adapters: number of targets is 0, expected at least 1, such as q_proj");
  expect_refused({.targets = {"q_proj", "all-linear"}},
                 "add_adapters: targets are all-linear and others, expected all-linear alone");
}

TEST(AdaptersErrors, NameTheTarget) {
  expect_refused({.targets = {"q_prj"}},
                 "add_adapters: target \"q_prj\" matches no Linear, expected one of down_proj, "
                 "gate_proj, k_proj, lm_head, o_proj, q_proj, up_proj, v_proj");
  expect_refused(
      {.targets = {"lm_head"}},
      "add_adapters: target is \"lm_head\", expected another Linear than the head, whose "
      "product is part of the loss");
  TransformerConfig experts = grouped();
  experts.experts = 4;
  experts.experts_per_token = 2;
  experts.expert_ffn = 16;
  expect_refused({.targets = {"gate_proj"}},
                 "add_adapters: target \"gate_proj\" is parameter "
                 "\"model.layers.0.mlp.experts.gate_proj\", expected the name of a Linear; weights "
                 "of experts are multiplied in groups",
                 experts);
  Sequential none;
  none.append(std::make_shared<Dropout>(0));
  expect_error("add_adapters: number of Linear modules but the head is 0, expected at least 1",
               [&] { add_adapters(none, {.targets = {"all-linear"}}); });
}

TEST(AdaptersErrors, TellTheOrderOfCalls) {
  on_mesh({{"dp", 1}}, [](const DeviceMesh& mesh) {
    TransformerModel model(grouped());
    parallelize(model, mesh, transformer_styles(model.config()));
    const std::string words = "is sharded, expected a model before parallelize and fully_shard";
    expect_error(words, [&] { add_adapters(model); });
    expect_error(words, [&] { quantize_base(model, 4); });
    TransformerModel other(grouped());
    fully_shard(*other.blocks()[0], mesh);
    expect_error("add_adapters: module \"model.layers.0\" " + words, [&] { add_adapters(other); });
  });
  TransformerModel twice(grouped());
  add_adapters(twice);
  expect_error(
      "add_adapters: module \"model.layers.0.self_attn.q_proj.lora_A\" is an adapter, "
      "expected a model without",
      [&] { add_adapters(twice); });
  TransformerModel plain(grouped());
  expect_error("merge_adapters: number of adapters is 0, expected at least 1",
               [&] { merge_adapters(plain); });
  expect_error("save_peft: number of adapters is 0, expected at least 1",
               [&] { save_peft(plain, "unused"); });
  expect_error("adapter_state_dict: number of adapters is 0, expected at least 1",
               [&] { adapter_state_dict(plain); });
  expect_error(
      "adapter_state_dict: parameter \"model.layers.0.self_attn.q_proj.lora_A.weight\" "
      "has no memory, expected some; call materialize first",
      [&] { adapter_state_dict(twice); });
}

TEST(AdaptersErrors, OfQuantizedWeights) {
  TransformerModel model(grouped());
  expect_error("quantize_base: bits of a weight are 5, expected 4 or 8",
               [&] { quantize_base(model, 5); });
  convert_to_float8(model);
  expect_error(
      "quantize_base: module \"model.layers.0.self_attn.q_proj\" has another product "
      "already, expected a plain Linear",
      [&] { quantize_base(model, 4); });
  Sequential tied;
  for (int i = 0; i < 2; ++i) tied.append(std::make_shared<Linear>(4, 4));
  tied.children()[1].second->set_parameter("weight",
                                           tied.children()[0].second->own_parameters()[0].second);
  expect_error(
      "quantize_base: weight of \"0\" is tied to another parameter, expected one that is not tied",
      [&] { quantize_base(tied, 4); });
  Sequential none;
  none.append(std::make_shared<Dropout>(0));
  expect_error("quantize_base: number of Linear modules but the head is 0, expected at least 1",
               [&] { quantize_base(none, 8); });
  TransformerModel packed(grouped());
  add_adapters(packed);
  quantize_base(packed, 4);
  packed.materialize();
  expect_error(
      "merge_adapters: weight of \"model.layers.0.self_attn.q_proj\" is quantized, "
      "expected a floating one; load the base without quantize_base",
      [&] { merge_adapters(packed); });
  on_mesh({{"tp", 1}}, [](const DeviceMesh& mesh) {
    TransformerModel cut(grouped());
    quantize_base(cut, 4);
    expect_error("has a custom product, expected that of a Linear for products in 2 parts", [&] {
      parallelize(cut, mesh,
                  transformer_styles(cut.config(), {.sequence_parallel = true, .parts = 2}));
    });
  });
}

/// Loads the adapter of the reference, changed in its directory, into a model.
void expect_bad_files(const std::string& words,
                      const std::function<void(const std::string& folder)>& change,
                      const std::function<void(TransformerModel& model)>& prepare = {}) {
  Scratch scratch;
  const std::string folder = scratch.path("adapter");
  fs::copy(kReference + "lora/attention/initial", folder);
  change(folder);
  TransformerModel model(grouped());
  if (prepare) prepare(model);
  const size_t before = model.named_parameters().size();
  expect_error(words, [&] { load_peft(model, folder); });
  EXPECT_EQ(model.named_parameters().size(), before);
}

/// Replaces a text in the config.
auto with(const std::string& from, const std::string& to) {
  return [=](const std::string& folder) {
    const fs::path path = fs::path(folder) / "adapter_config.json";
    std::string text = bytes_in(path);
    const size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    std::ofstream(path) << text.replace(at, from.size(), to);
  };
}

TEST(AdaptersErrors, NameTheSettingOfFiles) {
  expect_bad_files("peft_type is \"IA3\", expected \"LORA\"", with("\"LORA\"", "\"IA3\""));
  expect_bad_files("use_dora is true, expected null; weft does not compute it",
                   with("\"use_dora\": false", "\"use_dora\": true"));
  expect_bad_files("rank_pattern is {\"q_proj\":3}, expected null; weft does not compute it",
                   with("\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 3}"));
  expect_bad_files("init_lora_weights is \"pissa\", expected true or false or null or ",
                   with("\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\""));
  expect_bad_files("r is 0, expected a whole number of at least 1", with("\"r\": 5", "\"r\": 0"));
  expect_bad_files("lora_alpha is \"x\", expected a number",
                   with("\"lora_alpha\": 12", "\"lora_alpha\": \"x\""));
}

TEST(AdaptersErrors, NameTheTensorOfFiles) {
  const auto none = [](const std::string&) {};
  const auto adapted = [](AdapterOptions options) {
    return [=](TransformerModel& model) { add_adapters(model, options); };
  };
  expect_bad_files("lora_A.weight\" is f32 [5, 32], expected [4, 32] of a floating dtype",
                   with("\"r\": 5", "\"r\": 4"));
  expect_bad_files("rank and scale are 5 and 2.4, expected 5 and 2, those of \"model.layers.0.",
                   none, adapted({.rank = 5, .alpha = 10}));
  expect_bad_files("k_proj.lora_A.weight\" is missing", none,
                   adapted({.rank = 5, .alpha = 12, .targets = {"q_proj", "k_proj", "v_proj"}}));
  expect_bad_files("has 8 tensors, expected 4, those of the adapters of the model", none,
                   adapted({.rank = 5, .alpha = 12, .targets = {"q_proj"}}));
  expect_bad_files(" belongs to no Linear of the model, expected lora_A and lora_B of such modules",
                   [](const std::string& folder) {
                     fs::copy_file(kReference + "lora/attention/reference.safetensors",
                                   folder + "/adapter_model.safetensors",
                                   fs::copy_options::overwrite_existing);
                   });
  expect_bad_files("has no tensor, expected adapters", [](const std::string& folder) {
    const std::string header = "{}      ";
    const uint64_t length = header.size();
    std::ofstream(folder + "/adapter_model.safetensors", std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&length), sizeof length) << header;
  });
}

TEST(AdaptersErrors, NothingIsOverwritten) {
  Scratch scratch;
  TransformerModel model(grouped());
  add_adapters(model);
  model.materialize();
  save_peft(model, scratch.path("adapter"));
  expect_error("has adapter_model.safetensors already, expected a directory without",
               [&] { save_peft(model, scratch.path("adapter")); });
}

}  // namespace
}  // namespace weft
