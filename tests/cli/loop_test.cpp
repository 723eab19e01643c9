// SPDX-License-Identifier: Apache-2.0

// The work of `weft train` around its steps: validation, the best model, policies.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"

namespace weft::tests {
namespace {

class Loop : public testing::Test {
 protected:
  void SetUp() override {
    text_ = scratch_.write("text", repeating_text(200));
    other_ = scratch_.write("other", repeating_text(20));
    common_ = concat("train --data ", text_, " --model tiny --seq 16 --batch 4 --threads 1 ");
  }
  std::string metrics() const { return scratch_.path("metrics.jsonl"); }

  Scratch scratch_;
  std::string text_, other_, common_;
};

TEST_F(Loop, ValidatesOnOtherFiles) {
  const std::string flags =
      concat(common_, "--steps 6 --validate-every 4 --validation-batches 0 --metrics ", metrics());
  expect(0, concat(flags, " --validation ", other_), "validation loss");
  const auto lines = metrics_in(metrics());
  ASSERT_EQ(lines.size(), 6U);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["val_loss"].is_null(), i != 3 && i != 5) << i;
  }
  expect(2, concat(flags, " --validation ", scratch_.path("none")), "none");
  expect(2, concat(common_, "--save ", scratch_.path("x"), " --validation ", scratch_.path("")),
         "--save");
}

TEST_F(Loop, KeepsTheBestAndEndsWithoutProgress) {
  const std::string run = scratch_.path("run");
  // A learning rate that spoils the model after its first steps.
  expect(
      0,
      concat(common_, "--steps 40 --validate-every 1 --patience 2 --lr 5 --keep-best --save ", run),
      "validations in a row found no lower one");
  EXPECT_FALSE(list_checkpoints(run + "/best").empty());
  expect(0, concat("sample ", run, "/best --prompt line --tokens 4 --mesh tp=1"));
  expect(2, concat(common_, "--keep-best"),
         "--save is empty, expected a directory for --keep-best");
}

TEST_F(Loop, SkipsAndStops) {
  expect(0,
         concat(common_, "--steps 12 --spike-threshold 0.1 --on-spike skip --metrics ", metrics()));
  int skipped = 0;
  for (const auto& line : metrics_in(metrics())) skipped += line.contains("skipped");
  // The first eight losses have no median to compare with.
  EXPECT_EQ(skipped, 4);
  expect(1, concat(common_, "--steps 12 --spike-threshold 0.1"),
         "the largest gradient is that of ");
  // f32 overflows at such rates.
  expect(1, concat(common_, "--steps 40 --on-non-finite skip --most-skipped 1 --lr 1e38"),
         "2 steps in a row were skipped, expected at most 1, --most-skipped");
  expect(2, concat(common_, "--on-spike never --spike-threshold 2"), "--on-spike");
}

TEST_F(Loop, WritesMetricsToTheFolderOfTheRun) {
  const std::string run = scratch_.path("run");
  const auto steps = [&](int count) {
    const auto lines = metrics_in(run + "/metrics.jsonl");
    ASSERT_EQ(std::ssize(lines), count);
    EXPECT_EQ(lines.back()["step"], count);
  };
  expect(0, concat(common_, "--steps 3 --save ", run, " --metrics ", scratch_.path("a.csv")));
  steps(3);
  expect(0, concat(common_, "--steps 5 --resume ", run, " --save ", run));
  steps(5);
  expect(0, concat("report ", run, " -o ", scratch_.path("page.html")));
  // The same file by another name is written once.
  expect(0, concat(common_, "--steps 2 --save ", scratch_.path("b"), " --metrics ",
                   scratch_.path("b"), "/./metrics.jsonl"));
  EXPECT_EQ(metrics_in(scratch_.path("b/metrics.jsonl")).size(), 2U);
}

TEST_F(Loop, TrainsInF16WithAScaledLoss) {
  expect(0, concat(common_, "--dtype f16 --steps 4 --metrics ", metrics()));
  const auto lines = metrics_in(metrics());
  ASSERT_EQ(lines.size(), 4U);
  for (const auto& line : lines) EXPECT_GE(line["loss_scale"], 1);
  EXPECT_TRUE(lines.back()["loss"].is_number());
  expect(0, concat("estimate --model tiny --dtype f16 --optimizer muon"), "optimizer");
}

/// `train` samples by the sampler of the API.
TEST_F(Loop, SamplesAsSampleDoes) {
  const std::string run = scratch_.path("run");
  expect(0, concat(common_, "--steps 30 --lr 0.01 --save ", run, " --prompt line --sample 8"),
         "--- sample, after 4 given tokens\nline|");
  const std::string prompt = concat(" --prompt line --seed 0 --tokens 8");
  expect(0, concat("sample ", run, prompt));
}

TEST_F(Loop, HasALowerRateForFineTuning) {
  const std::string run = scratch_.path("run");
  expect(0, concat(common_, "--steps 1 --save ", run));
  expect(0, concat(common_, "--steps 1 --init ", run), "learning rate 2e-05");
  expect(0, concat(common_, "--steps 1 --lr 0.001 --init ", run), "learning rate 0.001");
}

}  // namespace
}  // namespace weft::tests
