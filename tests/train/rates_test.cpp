// SPDX-License-Identifier: Apache-2.0

// What a trainer does to gradients, rates and averages of the weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/collected_warnings.h"
#include "tests/train/formula_rows.h"
#include "weft/optimizers.h"
#include "weft/parameter_groups.h"
#include "weft/schedules.h"

namespace weft {
namespace {

/// The elements of all parameters, by name.
std::map<std::string, std::vector<double>> elements_of(const Module& model) {
  std::map<std::string, std::vector<double>> all;
  for (const NamedParameter& named : model.named_parameters()) {
    all[named.name()] = named.parameter->value().detach().full_tensor().to_vector<double>();
  }
  return all;
}

/// As torch.optim.lr_scheduler.LambdaLR: base rates of the groups times one factor.
TEST(Rates, GroupsKeepTheirProportion) {
  const Scratch scratch;
  const Schedule schedule = linear_schedule({.peak = 2e-5, .warmup = 2, .total = 8});
  TrainerOptions options = formula_options();
  options.steps = 8;
  options.validation = nullptr;
  options.schedule = schedule;
  options.checkpoints.save = options.checkpoints.resume = scratch.path("run");
  const auto train = [&](int ranks, int64_t first, int64_t last) {
    TrainerOptions own = options;
    own.steps = last;
    own.schedule = [&](int64_t step) { return schedule(step); };
    on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
      FormulaRun run(mesh);
      AdamW optimizer(groups_by_pattern<AdamWOptions>(run.model.named_parameters(),
                                                      {{"embed", {.learning_rate = 1e-5}}},
                                                      {.learning_rate = 2e-5}));
      TrainerOptions of_rank = own;
      of_rank.on_step = [&](const StepReport& report) {
        const double factor = schedule(report.step - 1) / 2e-5;
        const std::vector<double> expected = {1e-5 * factor, 2e-5 * factor};
        EXPECT_DOUBLE_EQ(report.learning_rate, expected[0]);
        for (size_t group = 0; group < 2; ++group) {
          EXPECT_DOUBLE_EQ(optimizer.learning_rate(group), expected[group]) << report.step;
        }
        // At step 1 both rates are 0.
        EXPECT_EQ(report.learning_rates.size(), factor == 0 ? 0U : 2U) << report.step;
      };
      Trainer trainer(run.model, std::make_shared<FormulaRows>(), optimizer, run.rows, of_rank);
      EXPECT_EQ(trainer.resume(), first);
      trainer.run();
    });
  };
  train(3, 0, 4);
  train(1, 4, 8);
}

TEST(Rates, GroupsOfOneRateHaveThatOfTheSchedule) {
  on_mesh({{"dp", 1}}, [](const DeviceMesh& mesh) {
    FormulaRun run(mesh);
    TrainerOptions options = formula_options();
    options.steps = 2;
    options.schedule = [](int64_t) { return 3e-4; };
    run.losses(options);
    EXPECT_EQ(run.optimizer->learning_rate(), 3e-4);
  });
}

TEST(Rates, AnotherScheduleIsWarnedOf) {
  const Scratch scratch;
  TrainerOptions options = formula_options();
  options.checkpoints.save = options.checkpoints.resume = scratch.path("run");
  const auto warnings = [&](int64_t steps, double rate) {
    options.steps = steps;
    options.schedule = [rate](int64_t) { return rate; };
    std::string all;
    const CollectedWarnings collected([&](const std::string& sentence) { all += sentence; });
    on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) { FormulaRun(mesh).losses(options); });
    return all;
  };
  EXPECT_EQ(warnings(2, 1e-3).find("learning rate of"), std::string::npos);
  EXPECT_EQ(warnings(3, 1e-3).find("learning rate of"), std::string::npos);
  EXPECT_NE(warnings(4, 5e-2).find("the learning rate of step 3 is 0.05 by the schedule of this "
                                   "run, and was 0.001; the rate changes from here on"),
            std::string::npos);
}

TEST(Rates, ElementsAreClippedByValue) {
  for (const int ranks : {1, 3}) {
    on_mesh({{"dp", ranks}}, [](const DeviceMesh& mesh) {
      constexpr double kMost = 1e-3;
      const auto changes = [&](double most) {
        FormulaRun run(mesh);
        const auto before = elements_of(run.model);
        SGD optimizer(run.model.named_parameters(), {.learning_rate = 1});
        TrainerOptions options = formula_options();
        options.steps = 1;
        options.schedule = {};
        options.clip = 0;
        options.clip_value = most;
        Trainer(run.model, std::make_shared<FormulaRows>(), optimizer, run.rows, options).run();
        auto after = elements_of(run.model);
        for (auto& [name, values] : after) {
          for (size_t i = 0; i < values.size(); ++i) values[i] -= before.at(name)[i];
        }
        return after;
      };
      const auto whole = changes(0), clipped = changes(kMost);
      int64_t cut = 0;
      for (const auto& [name, values] : whole) {
        for (size_t i = 0; i < values.size(); ++i) {
          cut += std::abs(values[i]) > kMost;
          EXPECT_NEAR(clipped.at(name)[i], std::clamp(values[i], -kMost, kMost), 1e-6) << name;
        }
      }
      EXPECT_GT(cut, 0);
    });
  }
}

constexpr const char* kMixtral =
    R"({"model_type":"mixtral","hidden_size":16,"intermediate_size":12,"num_hidden_layers":2,)"
    R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":89,"num_local_experts":5,)"
    R"("num_experts_per_tok":2,"max_position_embeddings":64,"rms_norm_eps":1e-5,)"
    R"("output_router_logits":true,"router_aux_loss_coef":0.5})";

/// Later tokens change nothing of earlier ones: padded rows balance as the rows without padding.
TEST(Rates, PaddingCountsInNoBalance) {
  for (const int ranks : {1, 3}) {
    on_mesh({{"dp", ranks}}, [](const DeviceMesh& mesh) {
      TransformerModel model(transformer_config_of(kMixtral, "mixtral"));
      for (Module* block : model.blocks()) fully_shard(*block, mesh);
      fully_shard(model, mesh);
      model.materialize();
      const TensorOptions options{DType::i64, cpu, Sharding(mesh, {Shard(0)})};
      const auto balance = [&](int64_t length, int64_t kept) {
        std::vector<double> ids, targets;
        for (int64_t i = 0; i < 3 * length; ++i) {
          ids.push_back(static_cast<double>((i % length * 37 + i % length * (i % length)) % 89));
          // A prompt does not count for the loss, but for the balance.
          const bool counts = i % length >= 2 && i % length < kept;
          targets.push_back(counts ? 3 : static_cast<double>(kIgnoredTarget));
        }
        (void)model.loss(from_values(ids, {3, length}, options),
                         from_values(targets, {3, length}, options));
        return model.balance_loss().full_tensor().item();
      };
      const double expected = balance(5, 5);
      EXPECT_NEAR(balance(11, 5), expected, 1e-5);
      EXPECT_GT(std::abs(balance(11, 11) - expected), 1e-3);
    });
  }
}

TEST(Rates, ReportsTheLossOfTheTargetsApart) {
  on_mesh({{"dp", 2}}, [](const DeviceMesh& mesh) {
    TransformerModel model(transformer_config_of(kMixtral, "mixtral"));
    fully_shard(model, mesh);
    model.materialize();
    AdamW optimizer(model.named_parameters(), {.learning_rate = 0});
    TrainerOptions options = formula_options();
    options.accumulate = 1;
    options.steps = 1;
    options.schedule = {};
    // The same rows.
    options.validation = std::make_shared<FormulaRows>(6);
    options.on_step = [](const StepReport& report) {
      EXPECT_NEAR(report.loss, *report.validation_loss, 1e-5);
      ASSERT_TRUE(report.experts && report.experts->balance_loss);
      EXPECT_GT(*report.experts->balance_loss, 1.9);
    };
    Trainer(model, std::make_shared<FormulaRows>(6), optimizer, Sharding(mesh, {Shard(0)}), options)
        .run();
  });
}

/// The same model padded has as many tokens a second as without: padding is none.
TEST(Rates, PaddingIsNoSpeed) {
  class HalfRows : public FormulaRows {
   public:
    void read(int64_t first, const RowSpans& into) const override {
      FormulaRows::read(first, into);
      for (size_t i = 0; i < into.targets.size(); ++i) {
        into.targets[i] = i % kFormulaSequence < 6 ? 1 : kIgnoredTarget;
      }
    }
  };
  on_mesh({{"dp", 1}}, [](const DeviceMesh& mesh) {
    FormulaRun run(mesh);
    TrainerOptions options = formula_options();
    options.steps = 1;
    options.peak_tokens = 1e6;
    options.on_step = [](const StepReport& report) {
      // Six rows of six tokens, in less than the seconds of the run so far.
      EXPECT_GE(report.tokens_per_second * report.seconds, 6 * 6 * 0.999);
      EXPECT_LE(report.tokens_per_second * report.parts.forward_backward, 6 * 6);
      EXPECT_DOUBLE_EQ(*report.utilization, report.tokens_per_second / 1e6);
    };
    Trainer(run.model, std::make_shared<HalfRows>(), *run.optimizer, run.rows, options).run();
  });
}

/// Averages as AveragedModel of PyTorch with get_ema_multi_avg_fn has them: the first update
/// copies.
TEST(Rates, AveragesAreValidatedAndSaved) {
  constexpr double kDecay = 0.8;
  const Scratch scratch;
  for (const int ranks : {1, 3}) {
    TrainerOptions options = formula_options();
    options.steps = 6;
    options.schedule = [](int64_t) { return 2e-2; };
    std::map<std::string, std::vector<double>> average;
    double validation = 0, plain = 0;
    on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
      // Steps without averages, of which those are made here.
      FormulaRun run(mesh);
      TrainerOptions own = options;
      own.on_step = [&](const StepReport& report) {
        const auto now = elements_of(run.model);
        // A step that is left out moves no averages.
        if (mesh.rank() != 0 || !report.skipped.empty()) return;
        for (const auto& [name, values] : now) {
          auto& mean = average[name];
          if (report.step == 1) mean = values;
          for (size_t i = 0; i < values.size(); ++i) {
            mean[i] = kDecay * mean[i] + (1 - kDecay) * values[i];
          }
        }
      };
      own.on_evaluation = [&](int64_t, double loss) { plain = loss; };
      Trainer(run.model, std::make_shared<FormulaRows>(), *run.optimizer, run.rows, own).run();
    });
    on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
      FormulaRun run(mesh);
      for (const NamedParameter& named : run.model.named_parameters()) {
        const NoGrad no_grad;
        const Tensor& value = named.parameter->value();
        copy_(value,
              from_values(average.at(named.name()), value.shape(), {.sharding = value.sharding()}));
      }
      validation =
          Trainer(run.model, std::make_shared<FormulaRows>(), *run.optimizer, run.rows, options)
              .evaluate();
    });
    options.ema = kDecay;
    options.checkpoints.save = options.checkpoints.resume = scratch.path(concat("run", ranks));
    double found = 0;
    for (const int64_t steps : {4, 6}) {
      TrainerOptions part = options;
      part.steps = steps;
      part.on_evaluation = [&](int64_t, double loss) { found = loss; };
      // The second part goes on with other ranks.
      on_mesh({{"dp", steps == 4 ? ranks : 2}},
              [&](const DeviceMesh& mesh) { FormulaRun(mesh).losses(part); });
    }
    EXPECT_NEAR(found, validation, 1e-5);
    EXPECT_GT(std::abs(found - plain), 1e-4);
  }
}

}  // namespace
}  // namespace weft
