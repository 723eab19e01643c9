// SPDX-License-Identifier: Apache-2.0

// `weft train` with an axis pp: the losses of a run without, and what is refused.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"

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

TEST_F(PipelineRun, RefusesWhatDoesNotFit) {
  const std::pair<const char*, const char*> cases[] = {
      {"--mesh dp=1 --schedule 1f1b",
       "--mesh is dp=1, expected one with an axis pp for the schedule 1f1b of a pipeline"},
      {"--mesh pp=2 --sample 3",
       "--sample is given with the axis pp of --mesh pp=2, expected one of them"},
      {"--mesh pp=2 --memory 1GiB",
       "--memory is given with the axis pp of --mesh pp=2, expected one of them"},
      {"--mesh pp=2 --pipeline-schedule interleaved --pipeline-chunks 3",
       "--mesh pp=2: number of stages is 6, expected at most 4, the layers of the model"},
      {"--mesh pp=2 --schedule dualpipe", "--schedule"},
      {"--mesh pp=2 --pipeline-chunks 0", "--pipeline-chunks is 0, expected a whole number from 1"},
  };
  for (const auto& [flags, words] : cases) expect(2, concat(common_, flags), words);
  expect(
      2, "estimate --mesh pp=2",
      "--mesh pp=2: axis is pp, expected none; weft train prints what it predicts of a pipeline");
}

}  // namespace
}  // namespace weft::tests
