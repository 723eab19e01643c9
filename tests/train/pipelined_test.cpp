// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/train/formula_rows.h"
#include "weft/context.h"
#include "weft/pipelined_transformer.h"

namespace weft {
namespace {

/// The run of FormulaRun, by the stages of a pipeline.
struct PipelinedRun {
  PipelinedRun(const DeviceMesh& mesh, const std::string& schedule)
      : model(std::make_shared<PipelinedTransformer>(
            mesh, transformer_config(grouped_model()),
            pipeline_program(schedule, mesh.axis_size(mesh.axis("pp")), 2), kFormulaSequence)) {
    const DeviceMesh& stages = model->stage_mesh();
    std::vector<NamedPlacement> cut;
    for (int axis = 0; axis < stages.ndim(); ++axis) {
      const std::string& name = stages.axis_name(axis);
      if (mesh.ndim() > 1) cut.push_back({name, Shard(0)});
    }
    for (const auto& stage : model->stages()) {
      for (const auto& unit : stage->units()) fully_shard(unit, stages);
      fully_shard(*stage, stages);
    }
    model->materialize();
    model->load_weights(grouped_model());
    optimizer = std::make_unique<AdamW>(
        model->named_parameters(),
        AdamWOptions{.learning_rate = 2e-3, .beta2 = 0.95, .weight_decay = 0.1});
    rows = Sharding(mesh, Placements(std::span<const NamedPlacement>(cut)));
  }
  std::vector<double> losses(TrainerOptions options) {
    std::vector<double> all;
    options.on_step = [&](const StepReport& report) { all.push_back(report.loss); };
    options.pipeline = model;
    Trainer(model->module(), std::make_shared<FormulaRows>(), *optimizer, rows, options).run();
    return all;
  }

  std::shared_ptr<PipelinedTransformer> model;
  std::unique_ptr<AdamW> optimizer;
  Sharding rows;
};

TEST(Pipelined, LossesAreThoseOfPytorch) {
  const nlohmann::json reference = trainer_reference();
  const std::vector<std::vector<MeshAxis>> meshes{
      {{"pp", 1}}, {{"pp", 2}}, {{"pp", 2}, {"dp", 2}}, {{"dp", 3}, {"pp", 2}}};
  for (const char* schedule : {"gpipe", "1f1b", "zb"}) {
    for (const auto& axes : meshes) {
      on_mesh(axes, [&](const DeviceMesh& mesh) {
        PipelinedRun run(mesh, schedule);
        TrainerOptions options = formula_options();
        double validation = 0;
        options.on_evaluation = [&](int64_t, double loss) { validation = loss; };
        const std::vector<double> losses = run.losses(options);
        ASSERT_EQ(losses.size(), 20U);
        for (size_t step = 0; step < losses.size(); ++step) {
          const nlohmann::json& expected = reference["masked"][step];
          if (expected.is_null()) continue;
          EXPECT_NEAR(losses[step], expected.get<double>(), 1e-4) << schedule << mesh << step;
        }
        EXPECT_NEAR(validation, reference["validation"].get<double>(), 1e-4) << schedule << mesh;
      });
    }
  }
}

TEST(Pipelined, ResumesOnAnotherMesh) {
  const Scratch scratch;
  const nlohmann::json reference = trainer_reference();
  TrainerOptions options = formula_options();
  options.checkpoints.save = options.checkpoints.resume = scratch.path("run");
  struct Part {
    std::vector<MeshAxis> axes;
    int64_t end;
  };
  int64_t begin = 0;
  for (const auto& [axes, end] : {Part{{{"pp", 2}, {"dp", 2}}, 4}, Part{{{"dp", 3}}, 8},
                                  Part{{{"pp", 2}}, 14}, Part{{{"dp", 1}, {"pp", 1}}, 20}}) {
    TrainerOptions part = options;
    part.steps = end;
    on_mesh(axes, [&, first = begin](const DeviceMesh& mesh) {
      const bool is_pipelined = axes.back().name == "pp" || axes.front().name == "pp";
      const std::vector<double> losses =
          is_pipelined ? PipelinedRun(mesh, "1f1b").losses(part) : FormulaRun(mesh).losses(part);
      ASSERT_EQ(static_cast<int64_t>(losses.size()), part.steps - first);
      for (size_t i = 0; i < losses.size(); ++i) {
        const nlohmann::json& expected = reference["masked"][static_cast<size_t>(first) + i];
        if (expected.is_null()) continue;
        EXPECT_NEAR(losses[i], expected.get<double>(), 1e-4) << mesh << first << ' ' << i;
      }
    });
    begin = end;
  }
}

TEST(Pipelined, StateOfStagesIsNotOnDisk) {
  const Scratch scratch;
  const Tier disk = Tier::disk(scratch.path("tier"));
  std::filesystem::create_directory(disk.directory());
  for (const bool parameters : {false, true}) {
    on_mesh({{"pp", 2}}, [&](const DeviceMesh& mesh) {
      PipelinedTransformer model(mesh, transformer_config(grouped_model()), gpipe(2, 2),
                                 kFormulaSequence);
      FullyShardOptions options;
      if (parameters) options.offload.parameters = disk;
      for (const auto& stage : model.stages()) fully_shard(*stage, model.stage_mesh(), options);
      model.materialize();
      AdamW optimizer(model.named_parameters(), {.offload = parameters ? Tier() : disk});
      TrainingState state;
      std::string thrown;
      try {
        model.add_to(state, optimizer);
      } catch (const std::invalid_argument& error) {
        thrown = error.what();
      }
      EXPECT_TRUE(thrown.starts_with("pipeline: tier of ")) << thrown;
      EXPECT_NE(thrown.find(" is disk, expected device or host"), std::string::npos) << thrown;
    });
  }
}

TEST(Pipelined, SavesNoStateOfUnequalDraws) {
  const Scratch scratch;
  on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) {
    TrainerOptions options = formula_options();
    options.steps = 1;
    options.checkpoints.save = scratch.path("run");
    Context::current().random = {5, static_cast<uint64_t>(mesh.rank())};
    std::string thrown;
    try {
      FormulaRun(mesh).losses(options);
    } catch (const std::invalid_argument& error) {
      thrown = error.what();
    }
    EXPECT_EQ(thrown.substr(0, 49), "trainer: random state of rank 1 is seed 5, stream");
  });
}

TEST(Pipelined, RefusesOptionsThatDoNotFit) {
  on_mesh({{"pp", 2}}, [](const DeviceMesh& mesh) {
    PipelinedRun run(mesh, "1f1b");
    const auto error_of = [&](const TrainerOptions& options, const Trainer::Loss& loss = {},
                              const Sharding& rows = {}) -> std::string {
      TrainerOptions all = options;
      all.pipeline = run.model;
      try {
        Trainer(run.model->module(), std::make_shared<FormulaRows>(), *run.optimizer,
                rows ? rows : run.rows, all, loss);
      } catch (const std::invalid_argument& error) {
        return error.what();
      }
      return "";
    };
    TrainerOptions options = formula_options();
    options.batch = options.accumulate = 3;
    EXPECT_EQ(error_of(options),
              "trainer: accumulate is 3, expected at most 2, the microbatches of the pipeline's "
              "program");
    options = formula_options();
    EXPECT_EQ(error_of(options, [](const TrainingBatch& batch) { return batch.ids; }),
              "trainer: loss is given with a pipeline, expected one of them");
    const DeviceMesh& stages = run.model->stage_mesh();
    EXPECT_EQ(error_of(options, {}, Sharding(stages, {})),
              "trainer: mesh of the rows is mesh(dp=1), expected that of the pipeline, mesh(pp=2)");
    EXPECT_THROW((*run.model->stages()[0])(Tensors()), std::invalid_argument);
  });
}

/// The error of a reproducible run by stages, on the rank that has it first.
std::string error_of_stages(const char* schedule, bool is_tied, double dropout, int sharers = 1) {
  return error_of([&] {
    on_mesh({{"pp", 2}, {"cp", sharers}}, [&](const DeviceMesh& mesh) {
      TransformerConfig config = transformer_config(grouped_model());
      config.tied = is_tied;
      config.residual_dropout = dropout;
      TrainerOptions options = formula_options();
      options.reproducible = true;
      options.pipeline = std::make_shared<PipelinedTransformer>(
          mesh, config, pipeline_program(schedule, 2, 2), kFormulaSequence);
      for (const auto& stage : options.pipeline->stages()) {
        fully_shard(*stage, options.pipeline->stage_mesh());
      }
      options.pipeline->materialize();
      AdamW optimizer(options.pipeline->named_parameters());
      Trainer(options.pipeline->module(), std::make_shared<FormulaRows>(), optimizer,
              Sharding(mesh, {}), options)
          .run();
    });
  });
}

TEST(Pipelined, RefusesReproducibleStagesThatAddOtherwise) {
  EXPECT_EQ(error_of_stages("zb", false, 0),
            "trainer: schedule zb computes gradients of weights apart, expected gpipe, 1f1b or "
            "interleaved for reproducible");
  EXPECT_EQ(error_of_stages("1f1b", true, 0),
            "trainer: the first and the last stage share the embedding, expected a model that is "
            "not tied for reproducible");
  EXPECT_EQ(error_of_stages("1f1b", false, 0.1),
            "pipeline: stage draws random numbers, as for dropout, expected none for reproducible");
  EXPECT_EQ(error_of_stages("1f1b", false, 0, 2),
            "trainer: stages share sequences along axis cp, expected one stage for reproducible");
}

}  // namespace
}  // namespace weft
