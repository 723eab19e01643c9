// SPDX-License-Identifier: Apache-2.0
#include "weft/pipeline.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "tests/pipeline/little_decoder.h"
#include "weft/error.h"

namespace weft {
namespace {

/// A training that a pipeline and one rank run.
struct Case {
  std::vector<MeshAxis> axes;
  std::string schedule = {};
  int microbatches = 4;
  TransformerConfig config = little_decoder();
  StageCut cut = {};
  int64_t rows = 3;
  int steps = 1;
  /// The learning rate of AdamW; 0: gradients are compared.
  double rate = 0;
  double bound = 1e-5;
};

void expect_as_one_rank(const Case& c, const LittleStep& expected) {
  on_mesh(c.axes, [&](const DeviceMesh& mesh) {
    const PipelineProgram program = pipeline_program(c.schedule, c.axes[0].size, c.microbatches);
    LittlePipeline pipeline(mesh, c.config, program, c.rate, c.cut);
    LittleStep made;
    for (int step = 0; step < c.steps; ++step) made = pipeline.step(c.rows, step, c.rate > 0);
    made.values = pipeline.values(c.rate == 0);
    expect_near(made, expected,
                concat(c.schedule, " on ", mesh, ", ", c.microbatches, " microbatches").c_str(),
                c.bound);
  });
}

void expect_as_one_rank(const Case& c) {
  expect_as_one_rank(c, on_one_rank(c.config, c.rows, c.microbatches, c.steps, c.rate));
}

TEST(Pipeline, EverySchedulesGradientsAreThoseOfOneRank) {
  const TransformerConfig config = little_decoder(8);
  for (int microbatches = 1; microbatches <= 8; ++microbatches) {
    const LittleStep expected = on_one_rank(config, 2, microbatches, 1, 0);
    for (int ranks = 2; ranks <= 4; ++ranks) {
      for (const char* name : {"gpipe", "1f1b", "interleaved", "zb"}) {
        expect_as_one_rank({.axes = {{"pp", ranks}},
                            .schedule = name,
                            .microbatches = microbatches,
                            .config = config,
                            .rows = 2},
                           expected);
      }
    }
  }
}

TEST(Pipeline, ATiedEmbeddingIsSummedOverBothStages) {
  for (const char* name : {"1f1b", "interleaved", "zb"}) {
    expect_as_one_rank({.axes = {{"pp", 3}},
                        .schedule = name,
                        .config = little_decoder(6, true),
                        .steps = 5,
                        .rate = 1e-2,
                        .bound = 1e-4});
  }
}

void shard_stage(TransformerModel& stage, const DeviceMesh& axes,
                 const FullyShardOptions& options) {
  for (const auto& unit : stage.units()) fully_shard(unit, axes, options);
  fully_shard(stage, axes, options);
}

void cut_tensors(TransformerModel& stage, const DeviceMesh& axis, bool is_sequence) {
  std::vector<ModuleStyle> own;
  for (const ModuleStyle& style :
       transformer_styles(stage.config(), {.sequence_parallel = is_sequence})) {
    for (const auto& [path, module] : stage.named_modules()) {
      const bool is_layer = style.path.starts_with("model.layers") && path == "model.layers";
      if (path != style.path && !is_layer) continue;
      own.push_back(style);
      break;
    }
  }
  parallelize(stage, axis, own);
}

TEST(Pipeline, ShardedStagesTrainAsOneRank) {
  const auto by = [](const Strategy& strategy) {
    return [strategy](TransformerModel& stage, const DeviceMesh& mesh) {
      shard_stage(stage, mesh, {.strategy = strategy});
    };
  };
  Case c{.axes = {{"pp", 2}, {"shard", 2}}, .steps = 20, .rate = 1e-2, .bound = 2e-4};
  const LittleStep expected = on_one_rank(c.config, c.rows, c.microbatches, c.steps, c.rate);
  for (const char* schedule : {"1f1b", "zb"}) {
    c.schedule = schedule;
    for (const Strategy& strategy : {Strategy::full_shard(), Strategy::zero2(), Strategy::ddp()}) {
      c.axes = {{"pp", 2}, {"shard", 2}};
      c.cut = by(strategy);
      expect_as_one_rank(c, expected);
    }
    c.axes = {{"pp", 2}, {"replicate", 2}, {"shard", 2}};
    c.cut = by(Strategy::hsdp());
    expect_as_one_rank(c, expected);
  }
}

/// The balance loss is of the layers of all stages together.
TEST(Pipeline, ExpertsInStagesTrainAsOneRank) {
  Case c{.axes = {{"pp", 3}}, .config = little_decoder(4), .steps = 4, .rate = 1e-2, .bound = 2e-4};
  c.config.experts = 4, c.config.expert_ffn = 10, c.config.experts_per_token = 2;
  c.config.balance_loss = true, c.config.balance_coefficient = 0.3;
  c.config.dense = {true, false, false, false};
  const LittleStep expected = on_one_rank(c.config, c.rows, c.microbatches, c.steps, c.rate);
  for (const char* schedule : {"1f1b", "zb"}) {
    c.schedule = schedule;
    c.axes = {{"pp", 3}};
    c.cut = {};
    expect_as_one_rank(c, expected);
    c.axes = {{"pp", 2}, {"ep", 2}};
    c.cut = [](TransformerModel& stage, const DeviceMesh& mesh) {
      parallelize(stage, mesh["ep"], expert_styles());
    };
    expect_as_one_rank(c, expected);
  }
}

TEST(Pipeline, RecomputedBlocksHaveTheSameGradients) {
  Case c{.axes = {{"pp", 2}, {"shard", 2}}};
  const LittleStep expected = on_one_rank(c.config, c.rows, c.microbatches, 1, 0);
  for (const char* schedule : {"1f1b", "zb"}) {
    c.schedule = schedule;
    c.cut = [](TransformerModel& stage, const DeviceMesh& mesh) {
      for (Module* block : stage.blocks()) block->set_recompute(true);
      shard_stage(stage, mesh, {});
    };
    expect_as_one_rank(c, expected);
  }
}

TEST(Pipeline, StagesCutByTensorsTrainAsOneRank) {
  Case c{.axes = {{"pp", 2}, {"tp", 2}}, .steps = 20, .rate = 1e-2, .bound = 2e-4};
  const LittleStep expected = on_one_rank(c.config, c.rows, c.microbatches, c.steps, c.rate);
  for (const char* schedule : {"1f1b", "interleaved", "zb"}) {
    c.schedule = schedule;
    for (const bool is_sequence : {false, true}) {
      c.axes = {{"pp", 2}, {"tp", 2}};
      c.cut = [=](TransformerModel& stage, const DeviceMesh& mesh) {
        cut_tensors(stage, mesh["tp"], is_sequence);
      };
      expect_as_one_rank(c, expected);
    }
    c.axes = {{"pp", 2}, {"replicate", 2}, {"tp", 2}};
    c.cut = [](TransformerModel& stage, const DeviceMesh& mesh) {
      cut_tensors(stage, mesh["tp"], true);
      shard_stage(stage, mesh["replicate"], {.strategy = Strategy::ddp()});
    };
    expect_as_one_rank(c, expected);
  }
}

template <class F> std::string error_of(const F& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Pipeline, RefusesWhatDoesNotFit) {
  on_mesh({{"pp", 2}}, [](const DeviceMesh& mesh) {
    EXPECT_EQ(error_of([&] { Pipeline(mesh, gpipe(3, 2)); }),
              "pipeline: axis pp has 2 ranks, expected 3, those of the program gpipe");
    PipelineProgram broken = gpipe(2, 2);
    broken.steps[0].pop_back();
    EXPECT_EQ(error_of([&] { Pipeline(mesh, broken); }),
              "pipeline: missing: reduction by stage 0 runs 0 times on rank 0, expected once");
    Pipeline pipeline(mesh, gpipe(2, 2));
    const int own = pipeline.position(), other = 1 - own;
    EXPECT_EQ(
        error_of([&] { pipeline.add({.stage = other}); }),
        concat("pipeline: stage is ", other, ", expected one of rank ", own, " along the axis pp"));
    EXPECT_EQ(error_of([&] { pipeline.add({.stage = own}); }),
              concat("pipeline: run of stage ", own, " is empty, expected a function"));
    EXPECT_EQ(error_of([&] { pipeline.run(); }),
              concat("pipeline: stage ", own,
                     " is missing on its rank, expected it; call add "
                     "first"));
    EXPECT_EQ(error_of([&] { pipeline.run(3); }),
              "pipeline: number of microbatches is 3, expected 1 to 2");
    EXPECT_EQ(error_of([&] {
                pipeline.tie({0, 0, "a", "b"});
              }),
              "pipeline: stages of the tie a are both 0, expected two; a stage ties its parameters "
              "itself");
  });
  EXPECT_EQ(error_of([] {
              balanced_stages({1, 2}, 3);
            }),
            "balanced_stages: number of stages is 3, expected 1 to 2, the number of parts");
}

/// The other stages wait for messages; none hangs.
TEST(Pipeline, AFailingStageIsNamedByAll) {
  std::array<std::string, 3> seen;
  const auto body = [&](const DeviceMesh& mesh) {
    Pipeline pipeline(mesh, one_forward_one_backward(3, 4));
    const int own = pipeline.position();
    pipeline.add({.stage = own, .run = [own](const Tensors& inputs, int m) {
                    if (own == 1 && m == 2) throw std::runtime_error("stage 1 failed");
                    Tensor x = own == 0 ? ones({4}).set_requires_grad() : inputs[0];
                    return Tensors{own == 2 ? sum(x) : mul(x, 2)};
                  }});
    try {
      pipeline.run();
    } catch (const std::exception& error) {
      seen[static_cast<size_t>(own)] = error.what();
      throw;
    }
  };
  EXPECT_THROW(on_mesh({{"pp", 3}}, body), std::runtime_error);
  EXPECT_EQ(seen[1], "stage 1 failed");
  for (const size_t other : {0, 2}) {
    EXPECT_NE(seen[other].find("rank 1, which threw"), std::string::npos) << seen[other];
  }
}

TEST(Pipeline, StagesCostTheLeast) {
  EXPECT_EQ(balanced_stages({1, 1, 1, 1}, 2), (std::vector<int>{2, 4}));
  EXPECT_EQ(balanced_stages({1, 1, 1, 1, 3}, 2), (std::vector<int>{4, 5}));
  EXPECT_EQ(balanced_stages({5, 1, 1, 1, 1, 4}, 3), (std::vector<int>{1, 5, 6}));
  EXPECT_EQ(balanced_stages({2, 2, 2}, 3), (std::vector<int>{1, 2, 3}));
}

TEST(Pipeline, ALossHasOneElement) {
  std::string thrown;
  try {
    on_mesh({{"pp", 1}}, [](const DeviceMesh& mesh) {
      Pipeline pipeline(mesh, gpipe(1, 1));
      pipeline.add({.stage = 0, .run = [](const Tensors&, int) { return Tensors(); }});
      pipeline.run();
    });
  } catch (const std::invalid_argument& error) {
    thrown = error.what();
  }
  EXPECT_EQ(thrown,
            "pipeline: number of results of the last stage is 0, expected 1, the loss, of one "
            "element");
}

}  // namespace
}  // namespace weft
