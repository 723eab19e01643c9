// SPDX-License-Identifier: Apache-2.0

// What `weft train` does around its steps: validation, the best model, policies.

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

TEST_F(Loop, HasALowerRateForFineTuning) {
  const std::string run = scratch_.path("run");
  expect(0, concat(common_, "--steps 1 --save ", run));
  expect(0, concat(common_, "--steps 1 --init ", run), "learning rate 2e-05");
  expect(0, concat(common_, "--steps 1 --lr 0.001 --init ", run), "learning rate 0.001");
}

}  // namespace
}  // namespace weft::tests
