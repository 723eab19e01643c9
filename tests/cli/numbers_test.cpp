// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"

namespace weft::tests {
namespace {

/// Seconds a command may take: its work does not grow with the numbers it is given. A sanitizer on
/// a busy machine takes 6.
constexpr double kAtMost = 20;
constexpr const char* kLimit = "timeout 30 ";

class Numbers : public testing::Test {
 protected:
  void SetUp() override { text_ = scratch_.write("text.txt", repeating_text(400)); }

  /// The program prints that one sentence, within seconds, and nothing is written.
  void expect_refused(const std::string& arguments, const std::string& sentence) const {
    const auto began = std::chrono::steady_clock::now();
    const Outcome outcome = run_weft(arguments, kLimit);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.text, concat("weft: ", sentence, '\n')) << arguments;
    EXPECT_LT(took.count(), kAtMost) << arguments;
    EXPECT_FALSE(std::filesystem::exists(scratch_.path("saved"))) << arguments;
  }

  std::string model(const char* key, int64_t value) const {
    nlohmann::json config{{"hidden_size", 64},        {"intermediate_size", 176},
                          {"num_hidden_layers", 3},   {"num_attention_heads", 8},
                          {"num_key_value_heads", 4}, {"vocab_size", 301},
                          {"rope_theta", 10000.0}};
    config[key] = value;
    return scratch_.write(concat("model-", key, value, ".json"), config.dump());
  }

  Scratch scratch_;
  std::string text_;
};

struct WrongNumber {
  std::string command;
  const char *flag, *value, *expected;
};

/// `train` and `sample`: the commands without the flag.
static std::vector<WrongNumber> wrong_numbers(const std::string& train, const std::string& sample) {
  const char* kCount = "expected a whole number from 1 to 2147483647";
  const char* kFromZero = "expected a whole number from 0 to 2147483647";
  const char* kSeed = "expected a whole number from 0 to 18446744073709551615";
  const char* kRanks = "expected a whole number from 1 to 1024";
  const char* kThreads = "expected a whole number from 0 to 1024";
  const char* kAbove = "expected a finite number above 0";
  const char* kAtLeast = "expected a finite number of at least 0";
  return {
      {train, "--steps", "0", kCount},
      {train, "--steps", "4611686018427387904", kCount},
      {train, "--steps", "99999999999999999999999", kCount},
      {train, "--steps", "1e3", kCount},
      {train, "--batch", "4611686018427387904", kCount},
      {train, "--batch", "-1", kCount},
      {train, "--seq", "0", kCount},
      {train, "--accumulate", "4611686018427387904", kCount},
      {train, "--sample", "4611686018427387904", kFromZero},
      {train, "--save-every", "-1", kFromZero},
      {train, "--keep", "-1", kFromZero},
      {train, "--seed", "-1", kSeed},
      {train, "--seed", "18446744073709551616", kSeed},
      {train, "--ranks", "1000000000", kRanks},
      {train, "--threads", "1000000000", kThreads},
      {train, "--lr", "1e400", kAbove},
      {train, "--lr", "inf", kAbove},
      {train, "--lr", "nan", kAbove},
      {train, "--lr", "0", kAbove},
      {train, "--lr", "0.1x", kAbove},
      {train, "--clip", "inf", kAbove},
      {train, "--clip", "nan", kAbove},
      {train, "--weight-decay", "nan", kAtLeast},
      {train, "--weight-decay", "-0.1", kAtLeast},
      {train, "--peak-tflops", "nan", "expected a finite number above 0 and at most 1e+09"},
      {train, "--peak-tflops", "0", "expected a finite number above 0 and at most 1e+09"},
      {train, "--deadline", "nan", "expected a finite number of at least 0.001 and at most 1e+06"},
      {train, "--deadline", "1e300",
       "expected a finite number of at least 0.001 and at most 1e+06"},
      {"estimate ", "--batch", "4611686018427387904", kCount},
      {"estimate ", "--world", "1000000000", "expected a whole number from 1 to 262144"},
      {"estimate ", "--rank", "-1", kFromZero},
      {"estimate ", "--rank", "5", "expected a whole number from 0 to 0"},
      {"estimate ", "--ranks-per-host", "0", kCount},
      {sample, "--tokens", "4611686018427387904", kCount},
      {sample, "--temperature", "nan", kAtLeast},
      {sample, "--temperature", "inf", kAtLeast},
      {sample, "--seed", "-1", kSeed},
      {sample, "--threads", "-1", kThreads},
      {sample, "--ranks", "0", kRanks},
      {"run ", "-n", "100000 -- true", kRanks},
      {"run ", "-n", "x -- true", kRanks},
      {"run -n 2 ", "--timeout", "inf -- true",
       "expected a finite number of at least 0 and at most 1e+09"},
      {"ckpt verify a ", "--threads", "0", kRanks},
      {"ckpt diff a b ", "--tolerance", "nan", kAtLeast},
      {"ckpt export a b ", "--file-gb", "0", "expected a whole number from 1 to 1048576"},
      {"ckpt import a b ", "--ranks", "99999999999", kRanks},
      {"ckpt reshard a b ", "--ranks", "-1", kRanks},
  };
}

TEST_F(Numbers, OfEachFlagAreCheckedBeforeAnythingStarts) {
  const std::string train = concat("train --data ", text_, " --save ", scratch_.path("saved"), " ");
  const std::string sample = concat("sample --resume ", scratch_.path(""), " --prompt a ");
  for (const auto& [command, flag, value, expected] : wrong_numbers(train, sample)) {
    const std::string printed = std::string(value).substr(0, std::string(value).find(' '));
    expect_refused(concat(command, flag, ' ', value),
                   concat(flag, " is ", printed, ", ", expected));
  }
}

TEST_F(Numbers, ThatTogetherAreTooManyAreRefused) {
  expect_refused("estimate --batch 2147483647 --seq 2147483647",
                 "--batch is 2147483647 rows of --seq 2147483647, expected at most 1099511627776 "
                 "tokens a step");
  expect_refused(
      "estimate --mesh a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1",
      "--mesh \"a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1\" has 9 axes or more, expected at most 8");
  expect_refused("estimate --mesh a=2147483647,b=2147483647,c=2147483647",
                 "--mesh a=2147483647,b=2147483647,c=2147483647 has 2147483647 ranks or more, "
                 "expected at most 262144");
  const std::string deep = model("num_hidden_layers", 1'000'000);
  for (const std::string& command : {concat("train --data ", text_), std::string("estimate")}) {
    expect_refused(concat(command, " --model ", deep),
                   concat("model config: ", deep, ": layers is 1000000, expected 1 to 10000"));
  }
  const std::string wide = model("vocab_size", int64_t{1} << 40);
  expect_refused(
      concat("estimate --model ", wide),
      concat("model config: ", wide, ": vocabulary is 1099511627776, expected 1 to 2147483647"));
  const std::string large = scratch_.write("large.json", std::string(2 << 20, ' '));
  expect_refused(concat("estimate --model ", large),
                 concat("model config: ", large, " has 2097152 bytes, expected at most 1048576"));
}

TEST_F(Numbers, OfManyLayersAreEstimatedInNoTime) {
  const std::string deep = model("num_hidden_layers", 10'000);
  for (const char* flags : {"--mesh dp=4,tp=2 --schedule", "--world 65536 --batch 65536",
                            "--batch 1000000 --accumulate 1000000"}) {
    const auto began = std::chrono::steady_clock::now();
    const Outcome outcome =
        run_weft(concat("estimate --machine h100 --model ", deep, ' ', flags), kLimit);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_LT(took.count(), kAtMost) << flags;
    EXPECT_LT(outcome.text.size(), 100'000U);
  }
}

TEST_F(Numbers, AndNamesAreOneHarmlessLine) {
  const std::string name = scratch_.path("a\n\x1b[2J\xe2\x80\xae\xc2\x9b\xff.json");
  expect_refused(
      concat("estimate --model '", name, "'"),
      concat("model config: ", in_quotes(name), " does not exist, expected tiny, small or a file"));
  expect_refused(concat("ckpt ls '", name, "'"),
                 concat("ckpt ls: ", printable(name), " does not exist"));
  expect_refused("'tr\x1b[2Jain'", "there is no command \"tr\\x1b[2Jain\"; see weft --help");
}

}  // namespace
}  // namespace weft::tests
