// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/train/formula_rows.h"
#include "weft/checkpoint_report.h"
#include "weft/ops.h"

namespace weft {
namespace {

/// The loss of the model, times a factor of each call.
Trainer::Loss scaled_loss(TransformerModel& model, std::function<double(int64_t call)> factor) {
  return [&model, factor, call = std::make_shared<int64_t>(0)](const Trainer::Batch& batch) {
    return mul(model.loss(batch.ids, batch.targets), factor((*call)++));
  };
}

struct Outcome {
  std::vector<StepReport> reports;
  std::string error = "nothing";
};

Outcome outcome_of(TrainerOptions options, const std::function<double(int64_t call)>& factor) {
  Outcome outcome;
  outcome.error = error_of<std::runtime_error>([&] {
    on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) {
      FormulaRun run(mesh);
      TrainerOptions own = options;
      own.batch = 6;
      own.accumulate = 1;
      own.validation = nullptr;
      if (mesh.rank() == 0) {
        own.on_step = [&](const StepReport& report) { outcome.reports.push_back(report); };
      }
      Trainer(run.model, std::make_shared<FormulaRows>(18), *run.optimizer, run.rows, own,
              scaled_loss(run.model, factor))
          .run();
    });
  });
  return outcome;
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Policies, SkipsStepsThatAreNotFinite) {
  TrainerOptions options = formula_options();
  options.on_non_finite = OnTrouble::skip;
  options.steps = 5;
  options.most_skipped = 2;
  const Outcome outcome = outcome_of(options, [](int64_t call) { return call == 1 ? kNaN : 1; });
  ASSERT_EQ(outcome.error, "nothing");
  ASSERT_EQ(outcome.reports.size(), 5U);
  EXPECT_EQ(outcome.reports[0].skipped, "");
  EXPECT_EQ(outcome.reports[1].skipped.find("the loss is nan, the gradient of "), 0U)
      << outcome.reports[1].skipped;
  EXPECT_EQ(outcome.reports[2].skipped, "");
  // Steps 1 and 3 had no difference but one update less than without.
  EXPECT_LT(outcome.reports[4].loss, outcome.reports[0].loss);
}

TEST(Policies, StopsAfterTooManySkips) {
  TrainerOptions options = formula_options();
  options.on_non_finite = OnTrouble::skip;
  options.most_skipped = 2;
  const Outcome outcome = outcome_of(options, [](int64_t call) { return call < 2 ? 1 : kNaN; });
  EXPECT_NE(outcome.error.find("train: 3 steps in a row were skipped, expected at most 2, "
                               "most_skipped; of the last one the loss is nan"),
            std::string::npos)
      << outcome.error;
  EXPECT_EQ(outcome.reports.size(), 4U);
}

TEST(Policies, StopsAtALossThatIsNotFinite) {
  const Outcome outcome =
      outcome_of(formula_options(), [](int64_t call) { return call < 2 ? 1 : kNaN; });
  EXPECT_NE(
      outcome.error.find("train: the loss at step 3 is nan; a smaller learning rate may help"),
      std::string::npos)
      << outcome.error;
}

TEST(Policies, SkipsOrStopsAtSpikes) {
  TrainerOptions options = formula_options();
  options.spike = 3;
  const auto spikes = [](int64_t call) { return call == 4 || call == 12 ? 10 : 1; };
  options.on_spike = OnTrouble::skip;
  const Outcome skipped = outcome_of(options, spikes);
  ASSERT_EQ(skipped.reports.size(), 20U) << skipped.error;
  // Fewer than eight losses were seen before the first one.
  for (size_t step = 0; step < 20; ++step) {
    EXPECT_EQ(skipped.reports[step].skipped.empty(), step != 12) << step;
  }
  EXPECT_NE(skipped.reports[12].skipped.find("the largest gradient is that of model."),
            std::string::npos)
      << skipped.reports[12].skipped;
  options.on_spike = OnTrouble::stop;
  const Outcome stopped = outcome_of(options, spikes);
  EXPECT_NE(stopped.error.find("train: at step 13 the loss is "), std::string::npos)
      << stopped.error;
  EXPECT_NE(stopped.error.find("above 3 times "), std::string::npos) << stopped.error;
}

TEST(Policies, KeepsTheBestAndEndsWithoutProgress) {
  const Scratch scratch;
  TrainerOptions options = formula_options();
  options.validate_every = 2;
  options.patience = 2;
  options.keep_best = true;
  options.checkpoints.save = scratch.path("run");
  std::vector<double> losses;
  std::string last_lines;
  on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) {
    FormulaRun run(mesh);
    TrainerOptions own = options;
    // Each step after the fourth makes the model worse.
    own.schedule = [](int64_t step) { return step < 4 ? 1e-2 : 0.3; };
    if (mesh.rank() == 0) {
      own.on_evaluation = [&](int64_t, double loss) { losses.push_back(loss); };
      own.tell = [&](const std::string& line) { last_lines += line; };
    }
    Trainer trainer(run.model, std::make_shared<FormulaRows>(), *run.optimizer, run.rows, own);
    EXPECT_TRUE(trainer.run());
    EXPECT_LT(trainer.step(), 20);
  });
  const auto best = std::ranges::min_element(losses);
  ASSERT_EQ(losses.end() - best, 3);
  const int64_t step = 2 * (best - losses.begin() + 1);
  const std::vector<std::string> kept = list_checkpoints(scratch.path("run/best"));
  ASSERT_FALSE(kept.empty());
  EXPECT_NE(kept[0].find(concat("step-0000000", step)), std::string::npos) << kept[0];
  EXPECT_NE(last_lines.find(concat("of step ", step, ", and 2 validations in a row")),
            std::string::npos)
      << last_lines;
  // The best one is resumed from as any other, and a new run leaves it alone.
  options.checkpoints = {.save = scratch.path("other"), .resume = scratch.path("run/best")};
  options.steps = step + 2;
  on_mesh({{"dp", 3}}, [&](const DeviceMesh& mesh) {
    FormulaRun run(mesh);
    EXPECT_EQ(run.losses(options).size(), 2U);
  });
  for (const std::string& path : list_checkpoints(scratch.path("run"))) {
    std::filesystem::remove_all(path);
  }
  options.checkpoints = {.save = scratch.path("run")};
  const std::string error = error_of([&] {
    on_mesh({{"dp", 1}}, [&](const DeviceMesh& mesh) { FormulaRun(mesh).losses(options); });
  });
  EXPECT_NE(error.find("save " + scratch.path("run/best") + " holds "), std::string::npos) << error;
}

/// Steps of a model that computes in f16.
std::vector<StepReport> steps_in_f16(TrainerOptions options, int ranks) {
  std::vector<StepReport> reports;
  on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
    FormulaRun run(mesh, {.precision = {.compute = f16, .gather = f16, .reduce = f32}});
    TrainerOptions own = options;
    own.on_step = [&](const StepReport& report) {
      if (mesh.rank() == 0) reports.push_back(report);
    };
    Trainer(run.model, std::make_shared<FormulaRows>(), *run.optimizer, run.rows, own).run();
  });
  return reports;
}

TEST(Policies, TrainsInF16AsPytorchInF32) {
  const nlohmann::json reference = trainer_reference();
  for (const int ranks : {1, 3}) {
    const auto reports = steps_in_f16(formula_options(), ranks);
    ASSERT_EQ(reports.size(), 20U);
    for (size_t step = 0; step < reports.size(); ++step) {
      const nlohmann::json& expected = reference["masked"][step];
      if (expected.is_null()) continue;
      EXPECT_NEAR(reports[step].loss, expected.get<double>(), 2e-2) << step;
      EXPECT_EQ(reports[step].skipped, "");
      EXPECT_EQ(reports[step].loss_scale, 65536);
    }
  }
}

TEST(Policies, SkipsStepsThatOverflowAndSavesTheScale) {
  const Scratch scratch;
  TrainerOptions options = formula_options();
  options.scaler.scale = 0x1p30;
  options.steps = 2;
  options.checkpoints.save = options.checkpoints.resume = scratch.path("run");
  const auto first = steps_in_f16(options, 2);
  EXPECT_EQ(first[0].skipped, "gradients overflow f16 at the loss scale 1.07374e+09");
  EXPECT_EQ(first[1].loss_scale, 0x1p29);
  options.steps = 20;
  const auto rest = steps_in_f16(options, 3);
  ASSERT_EQ(rest.size(), 18U);
  const double expected = first[1].skipped.empty() ? 0x1p29 : 0x1p28;
  EXPECT_EQ(rest[0].loss_scale, expected);
  EXPECT_EQ(rest.back().skipped, "");
}

TEST(Policies, StopsWhereSmallScalesOverflowToo) {
  const std::string error = error_of<std::runtime_error>([] {
    on_mesh({{"dp", 1}}, [](const DeviceMesh& mesh) {
      FormulaRun run(mesh, {.precision = {.compute = f16}});
      // A gradient that is infinite at any scale.
      const Trainer::Loss loss = [&](const Trainer::Batch& batch) {
        const Tensor own = run.model.loss(batch.ids, batch.targets);
        return add(own, mul(sqrt(sub(own, own.detach())), 1));
      };
      Trainer(run.model, std::make_shared<FormulaRows>(), *run.optimizer, run.rows,
              formula_options(), loss)
          .run();
    });
  });
  EXPECT_NE(error.find("train: the norm of the gradients at step 18 is"), std::string::npos)
      << error;
}

TEST(Policies, BeginsTheBestLossAnewForOtherRowsToValidateOn) {
  const Scratch scratch;
  TrainerOptions options = formula_options();
  options.keep_best = true;
  options.validate_every = 2;
  options.steps = 2;
  options.checkpoints.save = options.checkpoints.resume = scratch.path("run");
  std::vector<std::string> lines;
  options.tell = [&](const std::string& line) { lines.push_back(line); };
  const auto train = [&] {
    lines.clear();
    on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) { FormulaRun(mesh).losses(options); });
  };
  const std::string line =
      "the rows to validate on have changed: the lowest validation loss begins anew";
  train();
  options.steps = 4;
  train();
  EXPECT_EQ(std::ranges::count(lines, line), 0);
  // Rows of a higher loss: their first validation is the best so far.
  options.steps = 6;
  options.validation = std::make_shared<FormulaRows>(7, 1000, 9);
  train();
  EXPECT_EQ(std::ranges::count(lines, line), 1);
  EXPECT_EQ(
      std::ranges::count_if(lines, [](const auto& one) { return one.find("/best/") != one.npos; }),
      1);
}

}  // namespace
}  // namespace weft
