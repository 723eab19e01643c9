// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"

namespace weft::tests {
namespace {

/// `weft train` on texts, lines of JSON and conversations.
class DataFlags : public testing::Test {
 protected:
  static inline const fs::path kFiles = fs::path(WEFT_SOURCE_DIR) / "tests/reference/datasets";

  DataFlags() {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      scratch_.write("model/" + std::string(name), "");
      fs::copy_file(kFiles / name, scratch_.path("model/" + std::string(name)),
                    fs::copy_options::overwrite_existing);
    }
    scratch_.write("model/config.json",
                   R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 16,
                       "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 420,
                       "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
                       "max_position_embeddings": 64})");
  }
  std::string at(const std::string& name) const { return (kFiles / name).string(); }
  std::string train(const std::string& data, const std::string& more) const {
    return concat("train --batch 2 --seq 32 --model ", scratch_.path("model"), " --data ", data,
                  ' ', more);
  }
  /// The losses of the steps of a run, by step.
  static std::map<int, double> losses(const std::string& command) {
    const Outcome outcome = run_weft(command);
    EXPECT_EQ(outcome.code, 0) << command << '\n' << outcome.text;
    std::map<int, double> found;
    static const std::regex line(R"(step (\d+)/\d+  loss ([0-9.]+))");
    for (std::sregex_iterator i(outcome.text.begin(), outcome.text.end(), line), end; i != end;
         ++i) {
      found[std::stoi((*i)[1])] = std::stod((*i)[2]);
    }
    return found;
  }

  Scratch scratch_;
};

TEST_F(DataFlags, TextIsReadByTheTokenizerOfTheModel) {
  const Outcome outcome =
      run_weft(train(at("text"), "--steps 2 --sample 4 --prompt \"the License\""));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  // The ids of both texts.
  EXPECT_NE(outcome.text.find("671 tokens in 2 files"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("the License|"), std::string::npos) << outcome.text;
  EXPECT_EQ(outcome.text.find("after 11 given tokens"), std::string::npos) << outcome.text;
}

TEST_F(DataFlags, TokensAreKeptNextToTheRun) {
  const std::string run = scratch_.path("run"), flags = "--save " + run + " --resume " + run;
  expect(0, train(at("chat.jsonl"), "--steps 1 " + flags), "saved");
  const fs::path kept = fs::path(run) / "tokens";
  std::vector<fs::path> files;
  for (const auto& file : fs::recursive_directory_iterator(kept)) {
    if (file.path().extension() == ".bin") files.push_back(file.path());
  }
  ASSERT_EQ(files.size(), 1u);
  const auto time = fs::last_write_time(files[0]);
  expect(0, train(at("chat.jsonl"), "--steps 2 " + flags), "resumed from");
  EXPECT_EQ(fs::last_write_time(files[0]), time);
  // Conversations that differ are other data.
  expect(2, train(at("chat.jsonl"), "--steps 3 --loss-on all " + flags), "--allow-change data");
  expect(0,
         train(at("chat.jsonl"), "--steps 3 --token-cache " + scratch_.path("other") + ' ' + flags),
         "resumed from");
  EXPECT_FALSE(fs::is_empty(scratch_.path("other")));
}

TEST_F(DataFlags, AMixtureGoesOnOnOtherRanks) {
  const std::string data = concat(at("text"), ' ', at("lines.jsonl"), ' ', at("chat.jsonl"));
  for (const std::string& more :
       {std::string("--mix 5,3,2 "), std::string("--mix 1,1,1 --pack ")}) {
    const std::string run = scratch_.path("mixed" + std::to_string(more.size()));
    const auto whole = losses(train(data, more + "--steps 6"));
    ASSERT_EQ(whole.size(), 6u);
    (void)losses(train(data, more + "--steps 6 --save-every 3 --ranks 2 --save " + run));
    for (const auto& entry : fs::directory_iterator(run)) {
      if (entry.path().filename().string().starts_with("step-00000006"))
        fs::remove_all(entry.path());
    }
    const auto rest = losses(train(data, more + "--steps 6 --resume " + run));
    ASSERT_EQ(rest.size(), 3u);
    for (const auto& [step, loss] : rest) EXPECT_NEAR(loss, whole.at(step), 2e-3) << step;
  }
}

/// The losses are those of make_data_losses.py.
TEST_F(DataFlags, LossesEqualThoseOfPyTorch) {
  const auto expected = nlohmann::json::parse(std::ifstream(kFiles / "losses.json"));
  const std::string metrics = scratch_.path("metrics.jsonl");
  for (const auto& [kind, losses] : expected.items()) {
    for (const int ranks : {1, 3, 4}) {
      const std::string flags = concat(
          "train --init ", at("model"), " --tokenizer ", kFiles.string(), " --data ",
          at("lines.jsonl"), " --steps 20 --batch 2 --seq 32 --seed 3 --lr 1e-3 --weight-decay 0",
          " --ranks ", ranks, " --metrics ", metrics, kind == "packed" ? " --pack" : "");
      fs::remove(metrics);
      expect(0, flags, "step 20/20");
      std::ifstream lines(metrics);
      std::string line;
      for (size_t step = 0; step < losses.size(); ++step) {
        ASSERT_TRUE(std::getline(lines, line));
        EXPECT_NEAR(nlohmann::json::parse(line)["loss"].get<double>(), losses[step].get<double>(),
                    2e-5)
            << kind << ' ' << ranks << ' ' << step;
      }
    }
  }
}

TEST_F(DataFlags, SaysWhatIsWrong) {
  expect(2, train(at("lines.jsonl"), "--steps 1 --tokenizer bytes"),
         "is lines of JSON and the model, which has 420 ids, no tokenizer, expected one");
  expect(2, train(at("chat.jsonl"), "--steps 1 --loss-on nobody"), "--loss-on");
  expect(2, train(at("lines.jsonl"), "--steps 1 --field none"),
         "line 1: the field \"none\" is missing, expected it among \"text\"");
  expect(2, train(at("text"), "--steps 1 --mix 1,2"),
         "number of weights is 2, expected one for each");
  expect(2, concat("train --model tiny --steps 1 --chat-template chatml --data ", at("text")),
         "--chat-template is given without a tokenizer, expected both; name one by --tokenizer");
  expect(2, train(at("text"), "--steps 1 --chat-template none"), "chat: the template is \"none\"");
  expect(0, train(at("chat.jsonl"), "--steps 1 --chat-template " + at("marking.jinja")),
         "step 1/1");
}

}  // namespace
}  // namespace weft::tests
