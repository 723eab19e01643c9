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
  expect(0, concat(common_, "--steps 4 --validate-every 1 --keep-best --save ", run, "2"),
         concat("; that model is in ", run, "2/best"));
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

TEST_F(Loop, SaysHowItUpdates) {
  expect(0, concat(common_, "--steps 20"),
         "adamw: learning rate 0.003, beta1 0.9, beta2 0.95, eps 1e-08, weight decay 0.1; schedule "
         "cosine, 2 steps of warm-up, down to 0.0003\n");
  expect(0, concat(common_, "--steps 2 --beta1 0.8 --beta2 0.999 --eps 1e-6 --schedule linear"),
         "beta1 0.8, beta2 0.999, eps 1e-06, weight decay 0.1; schedule linear, down to 0\n");
  expect(0, concat(common_, "--steps 2 --optimizer sgd --schedule constant"),
         "sgd: learning rate 0.003, momentum 0.9");
  expect(2, concat(common_, "--optimizer sgd --beta2 0.9"),
         "sgd: beta2 is 0.9, expected none; it has no second moment");
  expect(2, concat(common_, "--optimizer lion --eps 0.1"),
         "lion: eps is 0.1, expected none; it divides by no moment");
  // One row of few is held out, not a whole batch.
  expect(0,
         concat("train --data ", scratch_.write("few", repeating_text(10)),
                " --model tiny --seq 16 --batch 16 --threads 1 --steps 1"),
         " rows to train on, 1 to validate on; a model");
}

/// The rates of a run's steps.
TEST_F(Loop, FollowsTheScheduleOfItsFlags) {
  const auto rates = [&](const std::string& flags) {
    expect(0, concat(common_, "--lr 1 --clip 1e-9 --optimizer sgd --weight-decay 0 --metrics ",
                     metrics(), ' ', flags));
    std::vector<double> all;
    for (const auto& line : metrics_in(metrics())) all.push_back(line["lr"]);
    return all;
  };
  // transformers.get_scheduler, whose warm-up begins a step earlier, with 0.
  const auto linear = rates("--steps 6 --warmup 2 --schedule linear");
  for (size_t i = 2; i < 6; ++i) EXPECT_DOUBLE_EQ(linear[i], (6.0 - double(i)) / 4) << i;
  const auto floor = rates("--steps 6 --warmup 2 --schedule linear --min-lr 0.5");
  for (size_t i = 2; i < 6; ++i) EXPECT_DOUBLE_EQ(floor[i], 0.5 + (6.0 - double(i)) / 8) << i;
  const auto power = rates("--steps 4 --warmup 0 --schedule polynomial --power 2");
  for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(power[i], std::pow(1 - double(i) / 4, 2)) << i;
  const auto restarts = rates("--steps 6 --warmup 0 --schedule cosine_with_restarts --restarts 2");
  for (const size_t i : {0U, 3U}) EXPECT_DOUBLE_EQ(restarts[i], 1) << i;
  const auto wsd = rates("--steps 6 --warmup 0 --schedule wsd --decay 2 --min-lr 0.25");
  EXPECT_EQ(wsd[3], 1);
  EXPECT_DOUBLE_EQ(wsd[5], 0.625);
}

TEST_F(Loop, RefusesFlagsThatTheScheduleLeavesOut) {
  expect(2, concat(common_, "--schedule one_cycle --warmup 8"),
         "--warmup is given with --schedule one_cycle, expected another one, which has a warm-up");
  expect(2, concat(common_, "--min-lr 0.1 --schedule constant"),
         "--min-lr is given with --schedule constant, expected linear, polynomial, wsd or one of "
         "cosine");
  expect(2, concat(common_, "--restarts 2"), "expected cosine_with_restarts");
  expect(2, concat(common_, "--power 2"), "--power is given with --schedule cosine");
  expect(2, concat(common_, "--decay 2"), "--decay is given with --schedule cosine, expected wsd");
  expect(2, concat(common_, "--min-lr 2"), "--min-lr is 2, expected at most --lr, 0.003");
  expect(2, concat(common_, "--schedule wsd --steps 4 --warmup 3 --decay 2"),
         "--decay is 2, expected at most 1, the steps after the warm-up");
}

TEST_F(Loop, KeepsItsScheduleWhenResumed) {
  const std::string run = scratch_.path("run");
  const std::string resumed =
      concat(common_, "--resume ", run, " --save ", run, " --metrics ", metrics(), ' ');
  expect(0, concat(common_, "--steps 8 --warmup 4 --lr 2e-5 --save-every 2 --keep 0 --save ", run));
  const double third = metrics_in(run + "/metrics.jsonl")[2]["lr"];
  for (const std::string& path : list_checkpoints(run)) {
    if (path.find("step-00000002") == path.npos) fs::remove_all(path);
  }
  ASSERT_EQ(list_checkpoints(run).size(), 1U);
  expect(2, concat(resumed, "--steps 8 --warmup 2"),
         "warm-up is 2, the checkpoint's is 4, expected equal values; --allow-change schedule "
         "continues with the new value");
  expect(2, concat(resumed, "--steps 8 --schedule linear"), "schedule is linear");
  expect(2, concat(resumed, "--steps 8 --min-lr 0"), "min-lr is 0");
  expect(2, concat(resumed, "--steps 8 --lr 1e-3"), "lr is 0.001, the checkpoint's is 2e-05");
  // Neither the rate nor the warm-up is given.
  expect(0, concat(resumed, "--steps 8"), "learning rate 2e-05");
  EXPECT_EQ(metrics_in(metrics())[0]["lr"], third);
  expect(0, concat(resumed, "--steps 9 --schedule linear --allow-change schedule"),
         "schedule is linear, the checkpoint's is cosine (allowed by --allow-change)");
}

TEST_F(Loop, NotesADecayThatTheRunDidNotHave) {
  const std::string run = scratch_.path("run");
  expect(0, concat(common_, "--steps 1 --save ", run));
  expect(0, concat(common_, "--steps 2 --no-decay embed --resume ", run, " --save ", run),
         "note: no-decay is embed, the checkpoint's is empty (other parameters decay from here "
         "on)");
  expect(2, concat(common_, "--steps 2 --no-decay 'wte|wpe'"),
         "no_decay: pattern \"wte|wpe\" finds no parameter, expected one of");
}

TEST_F(Loop, SavesAverages) {
  const std::string run = scratch_.path("run"),
                    goes_on = concat(" --resume ", run, " --save ", run);
  const std::string averaged = concat(common_, "--ema 0.5 --clip-value 0.01 --steps ");
  expect(0, concat(averaged, "4 --save ", run), "validation loss");
  expect(0, concat(averaged, 6, goes_on));
  expect(0, concat("ckpt export --prefix ema/ ", run, ' ', scratch_.path("averaged")));
  expect(0, concat("sample ", scratch_.path("averaged"), " --prompt line --tokens 4"));
  expect(2, concat(common_, "--steps 7 --ema 0.5", goes_on),
         "clip-value is empty, the checkpoint's is 0.01");
}

}  // namespace
}  // namespace weft::tests
