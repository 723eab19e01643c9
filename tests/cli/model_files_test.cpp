// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"

namespace weft::tests {
namespace {

/// Runs the program on a Hugging Face model with a tokenizer and ids of tokens.
class ModelFiles : public testing::Test {
 protected:
  void SetUp() override {
    const std::string made = std::string(WEFT_SOURCE_DIR) + "/tests/reference/grouped/";
    fs::copy(made, model_, fs::copy_options::recursive);
    auto config = nlohmann::json::parse(std::ifstream(made + "config.json"));
    config["bos_token_id"] = 1, config["eos_token_id"] = {2, 3}, config["pad_token_id"] = 7;
    config_ = config;
    scratch_.write("model/config.json", config.dump());
    scratch_.write("model/tokenizer.json", "a tokenizer");
    scratch_.write("model/generation_config.json", R"({"eos_token_id":[2,3]})");
    std::string text;
    for (int i = 0; i < 200; ++i) text += "A LINE OF TEXT\n";
    train_ = "train --tokenizer bytes --data " + scratch_.write("text.txt", text) +
             " --batch 2 --seq 8 --steps ";
  }
  /// The export of a run in `run` has what the model had.
  void expect_exported(const std::string& run) {
    const std::string out = run + "-out";
    expect(0, "ckpt export " + run + " " + out);
    const auto config = nlohmann::json::parse(std::ifstream(out + "/config.json"));
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
      EXPECT_EQ(config[key], config_[key]) << run << ' ' << key;
    }
    for (const char* name : {"/tokenizer.json", "/generation_config.json"}) {
      EXPECT_EQ(bytes_in(out + name), bytes_in(model_ + name)) << run << name;
    }
    EXPECT_FALSE(fs::exists(out + "/tokenizer.model"));
  }

  Scratch scratch_;
  std::string model_ = scratch_.path("model");
  nlohmann::json config_;
  /// A training, to be followed by its number of steps.
  std::string train_;
};

TEST_F(ModelFiles, AreCarriedFromImportToExport) {
  expect(0, "ckpt import " + model_ + " " + scratch_.path("in") + " --ranks 2");
  expect_exported(scratch_.path("in"));
  expect(0, "ckpt reshard " + scratch_.path("in") + " " + scratch_.path("two") + " --ranks 3");
  expect_exported(scratch_.path("two"));
}

TEST_F(ModelFiles, AreCarriedThroughTrainings) {
  const std::string train = train_ + "1 --save ";
  expect(0, train + scratch_.path("first") + " --init " + model_);
  expect_exported(scratch_.path("first"));
  expect(0, train + scratch_.path("second") + " --init " + scratch_.path("first"));
  expect_exported(scratch_.path("second"));
}

/// A run without files, next to the files of another one.
TEST_F(ModelFiles, OfAnotherRunAreNotTaken) {
  const std::string train = train_ + "1 --save ";
  scratch_.write("llama.json", kSmallLlama);
  const std::string first = scratch_.path("first"), run = scratch_.path("first/step-1");
  expect(0, train + first + " --init " + model_);
  expect(0, train + run + " --model " + scratch_.path("llama.json"));
  ASSERT_FALSE(fs::exists(run + "/hugging_face"));
  for (const std::string& from : {run, run + "/"}) {
    const std::string out = scratch_.path("out");
    expect(0, "ckpt export " + from + " " + out);
    EXPECT_FALSE(fs::exists(out + "/tokenizer.json"));
    fs::remove_all(out);
  }
  expect(0, train + scratch_.path("more") + " --steps 2 --resume " + run + " --model " +
                scratch_.path("llama.json"));
  EXPECT_FALSE(fs::exists(scratch_.path("more/hugging_face")));
  // A checkpoint has the files of its run, by any path.
  for (const auto& entry : fs::directory_iterator(first)) {
    if (!entry.path().filename().string().starts_with("step-0")) continue;
    expect_exported(entry.path().string());
    fs::create_directory_symlink(entry.path(), scratch_.path("newest"));
    expect_exported(scratch_.path("newest"));
    return;
  }
  FAIL() << "no checkpoint in " << first;
}

/// A run whose folder for these files is a model's, and directories of a run as targets.
TEST_F(ModelFiles, OfUsersAreNotReplaced) {
  const std::string run = scratch_.path("run");
  const std::string train = train_ + "2 --init " + model_ + " --save " + run;
  fs::create_directory(run);
  fs::copy(model_, run + "/hugging_face");
  scratch_.write("run/hugging_face/tokenizer.json", "the user's");
  expect(2, train, ".safetensors is a model's, expected");
  expect(2, "ckpt import " + model_ + " " + run, ".safetensors is a model's, expected");
  EXPECT_EQ(bytes_in(run + "/hugging_face/tokenizer.json"), "the user's");
  fs::remove_all(run);
  expect(0, train);
  scratch_.write("model/tokenizer.json", "another");
  expect(2, "ckpt import " + model_ + " " + run, " holds a checkpoint of step 2, expected");
  EXPECT_EQ(bytes_in(run + "/hugging_face/tokenizer.json"), "a tokenizer");
  expect(2, "ckpt export " + run + " " + run, " holds checkpoints, expected another");
  EXPECT_FALSE(fs::exists(run + "/config.json"));
}

TEST_F(ModelFiles, OfTheTargetStay) {
  expect(0, "ckpt import " + model_ + " " + scratch_.path("in"));
  scratch_.write("in-out/tokenizer.json", "another");
  expect(0, "ckpt export " + scratch_.path("in") + " " + scratch_.path("in-out"));
  EXPECT_EQ(bytes_in(scratch_.path("in-out/tokenizer.json")), "another");
}

/// The files are those of the model that the run or the import began with last.
TEST_F(ModelFiles, OfAnotherModelAreReplaced) {
  const std::string other = scratch_.path("other"), in = scratch_.path("in");
  fs::copy(model_, other, fs::copy_options::recursive);
  fs::remove(other + "/tokenizer.json");
  scratch_.write("other/tokenizer.model", "pieces");
  expect(0, "ckpt import " + other + " " + in);
  expect(0, "ckpt import " + model_ + " " + in);
  expect_exported(in);
  // A training that fails before it saves leaves nothing of its model.
  const std::string run = scratch_.path("run");
  const std::string train = train_ + "2 --save " + run + " --init ";
  expect(1, train + other + " --lr 1e38");
  EXPECT_TRUE(fs::exists(run + "/hugging_face/tokenizer.model"));
  expect(0, train + model_);
  expect_exported(run);
  // Resumed, the run keeps its own, whatever --init names.
  expect(0, train + other + " --resume " + run + " --allow-change lr --steps 3");
  fs::remove_all(run + "-out");
  expect_exported(run);
}

TEST_F(ModelFiles, AnExportNeedsTheConfigOfItsModel) {
  const std::string in = scratch_.path("in"), out = scratch_.path("out");
  expect(0, "ckpt import " + model_ + " " + in);
  auto config = config_;
  config["rms_norm_eps"] = 0.5;
  scratch_.write("out/config.json", config.dump());
  expect(2, "ckpt export " + in + " " + out, "/config.json describes another model, expected");
  EXPECT_FALSE(fs::exists(out + "/model.safetensors"));
  scratch_.write("out/config.json", config_.dump());
  scratch_.write("out/tokenizer.json", "another");
  expect(0, "ckpt export " + in + " " + out,
         "/tokenizer.json stays, but the model's is another file");
}

/// The ranks, threads of one process, share its descriptors.
TEST_F(ModelFiles, OfManyShardsAreImported) {
  std::string map;
  for (int i = 0; i < 150; ++i) {
    const std::string name = "t" + std::to_string(i), file = name + ".safetensors";
    map += (i ? ",\"" : "\"") + name + "\":\"" + file + "\"";
    scratch_.write_safetensors(
        "many/" + file, "{\"" + name + R"(":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}})",
        "abcde");
  }
  scratch_.write("many/model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  // A limit that nothing raises, and one that the program raises.
  for (const char* limit : {"ulimit -n 120; ", "ulimit -Sn 40; "}) {
    const std::string ranks = limit[8] == 'n' ? "3" : "8", out = scratch_.path("many" + ranks);
    const auto outcome =
        run_command(std::string(limit) + WEFT_PROGRAM + " ckpt import " + scratch_.path("many") +
                    ' ' + out + " --ranks " + ranks + " 2>&1");
    EXPECT_EQ(outcome.code, 0) << limit << outcome.text;
  }
}

TEST_F(ModelFiles, AreFoundFromWithinTheFolder) {
  const std::string in = scratch_.path("in"), out = scratch_.path("in-out");
  const auto within = [](const std::string& folder, const std::string& command) {
    const auto outcome =
        run_command("cd " + folder + " && " + WEFT_PROGRAM + ' ' + command + " 2>&1");
    EXPECT_EQ(outcome.code, 0) << command << outcome.text;
  };
  within(model_, "ckpt import model.safetensors.index.json " + in);
  for (const auto& entry : fs::directory_iterator(in)) {
    if (entry.path().filename().string().starts_with("step-"))
      within(entry.path(), "ckpt export . " + out);
  }
  EXPECT_EQ(bytes_in(out + "/tokenizer.json"), bytes_in(model_ + "/tokenizer.json"));
  EXPECT_TRUE(fs::exists(out + "/config.json"));
}

}  // namespace
}  // namespace weft::tests
