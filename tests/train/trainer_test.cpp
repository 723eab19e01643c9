// SPDX-License-Identifier: Apache-2.0
#include "weft/trainer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "tests/train/formula_rows.h"
#include "weft/layers.h"
#include "weft/ops.h"

namespace weft {
namespace {

void expect_losses_of_pytorch(const std::vector<MeshAxis>& axes) {
  const nlohmann::json reference = trainer_reference();
  on_mesh(axes, [&](const DeviceMesh& mesh) {
    FormulaRun run(mesh);
    TrainerOptions options = formula_options();
    double validation = 0;
    std::string skipped;
    options.on_evaluation = [&](int64_t step, double loss) {
      EXPECT_EQ(step, 20);
      validation = loss;
    };
    const std::vector<double> losses = run.losses(options);
    ASSERT_EQ(losses.size(), 20U);
    for (size_t step = 0; step < losses.size(); ++step) {
      const nlohmann::json& expected = reference["masked"][step];
      if (expected.is_null()) {
        EXPECT_TRUE(std::isnan(losses[step])) << step;
      } else {
        EXPECT_NEAR(losses[step], expected.get<double>(), 1e-4) << step;
      }
    }
    // Seven rows in micro-batches of three: what pads the last one does not count.
    EXPECT_NEAR(validation, reference["validation"].get<double>(), 1e-4);
  });
}

TEST(Trainer, LossesAreThoseOfPytorch) {
  expect_losses_of_pytorch({{"dp", 1}});
  expect_losses_of_pytorch({{"dp", 3}});
  expect_losses_of_pytorch({{"dp", 4}});
  expect_losses_of_pytorch({{"a", 2}, {"b", 2}});
}

TEST(Trainer, ResumesOnAnotherNumberOfRanksWithTheSameRows) {
  const Scratch scratch;
  TrainerOptions options = formula_options();
  options.steps = 9;
  std::vector<double> whole, parts;
  on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) {
    const std::vector<double> losses = FormulaRun(mesh).losses(options);
    if (mesh.rank() == 0) whole = losses;
  });
  options.checkpoints.save = options.checkpoints.resume = scratch.path("run");
  for (const int ranks : {4, 3, 1}) {
    TrainerOptions part = options;
    part.steps = ranks == 4 ? 2 : ranks == 3 ? 6 : 9;
    on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
      const std::vector<double> losses = FormulaRun(mesh).losses(part);
      if (mesh.rank() == 0) parts.insert(parts.end(), losses.begin(), losses.end());
    });
  }
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t step = 0; step < whole.size(); ++step) {
    if (std::isnan(whole[step])) continue;
    EXPECT_NEAR(parts[step], whole[step], 1e-4) << step;
  }
}

TEST(Trainer, RefusesToResumeWithOtherSettings) {
  const Scratch scratch;
  TrainerOptions options = formula_options();
  options.steps = 2;
  options.checkpoints.save = options.checkpoints.resume = scratch.path("run");
  const auto resumed = [&](const TrainerOptions& other, std::shared_ptr<const Dataset> data) {
    return error_of([&] {
      on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) { FormulaRun(mesh).losses(other, data); });
    });
  };
  ASSERT_EQ(resumed(options, nullptr), "nothing");
  options.steps = 4;
  TrainerOptions other = options;
  other.clip = 2;
  EXPECT_EQ(resumed(other, nullptr),
            "trainer: resume: clip is 2, the checkpoint's is 1, expected equal values; "
            "allow_change clip continues with the new value");
  const auto other_data = std::make_shared<FormulaRows>(600, 0, 8);
  EXPECT_EQ(resumed(options, other_data),
            "trainer: resume: data is 8, the checkpoint's is 7, expected equal values; "
            "allow_change data continues with the new value");
  // The same digest, but other rows.
  EXPECT_EQ(resumed(options, std::make_shared<FormulaRows>(600, 1)),
            "trainer: resume: steps 1 to 2 of the checkpoint used different tokens, expected those "
            "of the dataset; allow_change data continues with the new data");
  other.checkpoints.resume.clear();
  const std::string held = resumed(other, nullptr);
  EXPECT_NE(held.find("save " + other.checkpoints.save + " holds 1 checkpoint of another run"),
            std::string::npos)
      << held;
  other.checkpoints = {.save_every = 2};
  EXPECT_EQ(resumed(other, nullptr), "save is empty, expected a directory for save_every");
  other.checkpoints = {.resume = scratch.path("none")};
  EXPECT_EQ(resumed(other, nullptr),
            "resume " + scratch.path("none") + " is missing or a file, expected a directory");
}

TEST(Trainer, RefusesAModelThatIsNotSharded) {
  const std::string error = error_of([] {
    on_mesh({{"dp", 2}}, [](const DeviceMesh& mesh) {
      TransformerModel model(transformer_config(grouped_model()));
      model.materialize();
      AdamW optimizer(model.named_parameters());
      Trainer(model, std::make_shared<FormulaRows>(), optimizer, Sharding(mesh, {Shard(0)}),
              formula_options());
    });
  });
  EXPECT_EQ(
      error,
      "trainer: parameter model.embed_tokens.weight is on one rank, expected it on mesh(dp=2), "
      "the mesh of the rows; call fully_shard or ddp first");
}

/// Two linear layers over an embedding.
class OwnModule : public Module {
 public:
  OwnModule()
      : table_(add("table", std::make_shared<Embedding>(kFormulaVocabulary, 8))),
        head_(add("head", std::make_shared<Linear>(8, kFormulaVocabulary))) {}

 protected:
  Tensors forward(const Tensors& inputs) override { return {(*head_)((*table_)(inputs[0]))}; }

 private:
  std::shared_ptr<Embedding> table_;
  std::shared_ptr<Linear> head_;
};

Tensor loss_of_own(OwnModule& model, const Trainer::Batch& batch) {
  const Shape flat = {batch.ids.numel()};
  return cross_entropy(reshape(model(batch.ids), {flat[0], kFormulaVocabulary}),
                       reshape(batch.targets, flat));
}

TEST(Trainer, TakesAnyModuleAndLoss) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    OwnModule model;
    fully_shard(model, mesh);
    model.materialize();
    AdamW optimizer(model.named_parameters(), {.learning_rate = 3e-2});
    TrainerOptions options = formula_options();
    options.schedule = {};
    std::vector<double> losses;
    int64_t calls = 0;
    options.on_step = [&](const StepReport& report) { losses.push_back(report.loss); };
    const auto loss = [&](const Trainer::Batch& batch) {
      ++calls;
      return loss_of_own(model, batch);
    };
    const Sharding rows(mesh, {Shard(0)});
    Trainer trainer(model, std::make_shared<FormulaRows>(60), optimizer, rows, options, loss);
    EXPECT_TRUE(trainer.run());
    EXPECT_EQ(trainer.step(), 20);
    EXPECT_LT(losses.back(), losses.front());
    EXPECT_EQ(optimizer.learning_rate(), 3e-2);
    EXPECT_GE(calls, 2 * 19);
  });
}

TEST(Trainer, NamesASlowRank) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    OwnModule model;
    fully_shard(model, mesh);
    model.materialize();
    AdamW optimizer(model.named_parameters());
    TrainerOptions options = formula_options();
    std::vector<int> slow;
    std::string told;
    options.on_step = [&](const StepReport& report) {
      slow.push_back(report.slow_rank);
      EXPECT_EQ(report.slowness > 1.3, report.slow_rank >= 0);
    };
    options.tell = [&](const std::string& line) { told = line; };
    const auto loss = [&](const Trainer::Batch& batch) {
      if (mesh.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return loss_of_own(model, batch);
    };
    const Sharding rows(mesh, {Shard(0)});
    Trainer(model, std::make_shared<FormulaRows>(60), optimizer, rows, options, loss).run();
    EXPECT_EQ(slow.front(), -1);
    EXPECT_EQ(slow.back(), 1);
    if (mesh.rank() == 0) {
      EXPECT_NE(told.find("slow: rank 1, "), std::string::npos) << told;
    }
  });
}

TEST(Trainer, EndsWhereReplicasDiffer) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    OwnModule model;
    fully_shard(model, mesh, {.strategy = Strategy::ddp()});
    model.materialize();
    AdamW optimizer(model.named_parameters());
    TrainerOptions options = formula_options();
    options.check_replicas = 4;
    options.on_step = [&](const StepReport& report) {
      if (report.step != 5 || mesh.rank() != 2) return;
      const Tensor value = model.named_parameters()[1].parameter->value();
      value.block().as<uint32_t>()[3] ^= 1;
    };
    const Sharding rows(mesh, {Shard(0)});
    Trainer trainer(model, std::make_shared<FormulaRows>(60), optimizer, rows, options,
                    [&](const Trainer::Batch& batch) { return loss_of_own(model, batch); });
    EXPECT_EQ(error_of<std::runtime_error>([&] { trainer.run(); }),
              "check_replicas: parameter \"head.weight\" on rank 2 differs from that on rank 0, "
              "expected equal replicas along axis dp, after step 8");
    EXPECT_EQ(trainer.step(), 8);
  });
}

TEST(Trainer, StopsWhereARankAsksForIt) {
  on_mesh({{"dp", 2}}, [](const DeviceMesh& mesh) {
    FormulaRun run(mesh);
    TrainerOptions options = formula_options();
    Trainer* running = nullptr;
    options.on_step = [&](const StepReport& report) {
      if (mesh.rank() == 1 && report.step == 3) running->stop();
    };
    Trainer trainer(run.model, std::make_shared<FormulaRows>(), *run.optimizer, run.rows, options);
    running = &trainer;
    EXPECT_FALSE(trainer.run());
    EXPECT_EQ(trainer.step(), 3);
  });
}

TEST(Trainer, NamesWrongOptions) {
  on_mesh({{"dp", 1}}, [](const DeviceMesh& mesh) {
    FormulaRun run(mesh);
    const auto data = std::make_shared<FormulaRows>();
    const auto error = [&](const std::function<void(TrainerOptions&)>& change) {
      TrainerOptions options = formula_options();
      change(options);
      return error_of([&] { Trainer(run.model, data, *run.optimizer, run.rows, options); });
    };
    EXPECT_EQ(error([](auto& o) { o.accumulate = 0; }),
              "trainer: accumulate is 0, expected at least 1");
    EXPECT_EQ(error([](auto& o) { o.batch = 5; }),
              "trainer: batch is 5, expected a multiple of accumulate, 2");
    EXPECT_EQ(error([](auto& o) { o.steps = 0; }), "trainer: steps is 0, expected at least 1");
    EXPECT_EQ(error([](auto& o) { o.clip = -1; }), "trainer: clip is -1, expected at least 0");
    EXPECT_EQ(error([](auto& o) { o.clip_value = -1; }),
              "trainer: clip_value is -1, expected at least 0");
    EXPECT_EQ(error([](auto& o) { o.ema = 1; }),
              "trainer: ema is 1, expected a decay of at least 0 and below 1");
    EXPECT_EQ(error([](auto& o) { o.spike = -1; }), "trainer: spike is -1, expected at least 0");
    EXPECT_EQ(error([](auto& o) {
                o.validation = nullptr;
                o.validate_every = 2;
              }),
              "trainer: validation is null, expected a dataset for validate_every");
    EXPECT_EQ(error([](auto& o) {
                o.validation = nullptr;
                o.patience = 2;
              }),
              "trainer: validation is null, expected a dataset for patience");
    EXPECT_EQ(error([](auto& o) { o.keep_best = true; }),
              "trainer: save is empty, expected a folder for keep_best");
    EXPECT_EQ(error_of([&] { Trainer(run.model, nullptr, *run.optimizer, run.rows); }),
              "trainer: data is null, expected a dataset");
    EXPECT_EQ(error_of([&] { Trainer(run.model, data, *run.optimizer, Sharding()); }),
              "trainer: rows have no mesh, expected a sharding over one, such as {Shard(0)}");
    OwnModule own;
    EXPECT_EQ(error_of([&] { Trainer(own, data, *run.optimizer, run.rows); }),
              "trainer: loss is empty, expected a function, for the model is not a "
              "TransformerModel");
    TrainerOptions options;
    Trainer trainer(run.model, data, *run.optimizer, run.rows, options);
    EXPECT_EQ(error_of([&] { trainer.evaluate(); }),
              "trainer: validation is null, expected a dataset to evaluate on");
    // Rows 18 to 23 have no target that counts.
    options.validation = std::make_shared<FormulaRows>(6, 18);
    Trainer masked(run.model, data, *run.optimizer, run.rows, options);
    EXPECT_EQ(error_of([&] { masked.evaluate(); }),
              "trainer: validation has no target that counts, expected at least one");
  });
}

}  // namespace
}  // namespace weft
