// SPDX-License-Identifier: Apache-2.0

// What all ranks along a pipeline's axis share: random streams, inputs, and tied parameters.

#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <set>
#include <string>

#include "tests/pipeline/little_decoder.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/layers.h"
#include "weft/pipeline.h"

namespace weft {
namespace {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

/// Checks that each rank along pp refuses alike.
void expect_refused(const std::string& expected, const std::function<void()>& f) {
  EXPECT_EQ(error_of(f).substr(0, expected.size()), expected);
}

void differentiate(LittlePipeline& pipeline, int step = 0) {
  const int count = pipeline.model.pipeline().program().microbatches;
  std::vector<TrainingBatch> batches;
  const bool is_laid_out = pipeline.model.stages()[0]->parameters()[0]->value().is_sharded();
  for (int m = 0; m < count; ++m) {
    TrainingBatch batch = little_batch(2, step, m);
    if (is_laid_out) {
      batch = {on_rows(batch.ids, pipeline.model.stage_mesh()),
               on_rows(batch.targets, pipeline.model.stage_mesh())};
    }
    batches.push_back(batch);
  }
  pipeline.model.differentiate(batches, little_weights(2, step, count));
}

void shard_stage(TransformerModel& stage, const DeviceMesh& mesh) {
  for (const auto& unit : stage.units()) fully_shard(unit, mesh);
  fully_shard(stage, mesh);
}

/// The first value that each microbatch draws in each stage.
std::set<double> first_draws(const std::string& schedule, int64_t& after) {
  std::set<double> all;
  std::mutex mutex;
  on_mesh({{"pp", 2}}, [&](const DeviceMesh& mesh) {
    Context::current().random = {7, 3};
    Pipeline pipeline(mesh, pipeline_program(schedule, 2, 3));
    const int own = pipeline.position();
    pipeline.add({.stage = own, .run = [&, own](const Tensors& inputs, int) {
                    // Stages draw unequal numbers of values.
                    for (int i = 0; i <= 2 * own; ++i) {
                      const double drawn = weft::uniform({1}).item();
                      const std::lock_guard lock(mutex);
                      if (i == 0) all.insert(drawn);
                    }
                    const Tensor x = own == 0 ? ones({4}).set_requires_grad() : inputs[0];
                    return Tensors{own == 0 ? mul(x, 2) : sum(x)};
                  }});
    for (int step = 0; step < 2; ++step) pipeline.run();
    pipeline.evaluate();
    const auto stream = static_cast<int64_t>(Context::current().random.stream);
    for (const int64_t other : mesh.communicator().all_gather_numbers({&stream, 1})) {
      EXPECT_EQ(other, stream);
    }
    if (own == 0) after = stream;
    // Unequal draws between runs are made up for when the next one begins.
    if (own == 1) weft::uniform({1});
    pipeline.evaluate();
    EXPECT_EQ(mesh.communicator().all_reduce_number(
                  static_cast<int64_t>(Context::current().random.stream), ReduceOp::max),
              static_cast<int64_t>(Context::current().random.stream));
  });
  return all;
}

TEST(Agreement, StagesDrawFromStreamsOfTheirOwnAndThenAgree) {
  int64_t after = 0, other_after = 0;
  const std::set<double> drawn = first_draws("gpipe", after);
  EXPECT_EQ(drawn.size(), 2U * 3U * 4U);
  EXPECT_EQ(first_draws("zb", other_after), drawn);
  EXPECT_EQ(after, other_after);
}

TEST(Agreement, RowsOfStepsWithDropoutAreTheSameOnAllStages) {
  TransformerConfig config = little_decoder(3);
  config.residual_dropout = 0.1;
  on_mesh({{"pp", 2}}, [&](const DeviceMesh& mesh) {
    PipelinedTransformer model(mesh, config, gpipe(2, 2), 7, {1, 3});
    model.materialize();
    for (int step = 0; step < 3; ++step) {
      std::vector<TrainingBatch> batches;
      for (int m = 0; m < 2; ++m)
        batches.push_back({randint({2, 7}, 0, 37), randint({2, 7}, 0, 37)});
      EXPECT_EQ(model.differentiate(batches, {0.5, 0.5}).size(), 2U);
    }
  });
}

TEST(Agreement, InputsAreCompared) {
  on_mesh({{"pp", 2}, {"dp", 1}}, [](const DeviceMesh& mesh) {
    const int rank = mesh.rank();
    LittlePipeline pipeline(mesh, little_decoder(2), gpipe(2, 2), 0);
    const TrainingBatch one = little_batch(2, 0, 0), two = little_batch(2, 0, 1);
    const auto run = [&](std::vector<TrainingBatch> batches, std::vector<double> weights) {
      return [&model = pipeline.model, batches, weights] { model.differentiate(batches, weights); };
    };
    expect_refused("pipeline: hash of ids on rank 1 along pp is ",
                   run({{rank == 0 ? one.ids : two.ids, one.targets}}, {1}));
    expect_refused("pipeline: hash of targets on rank 1 along pp is ",
                   run({{one.ids, rank == 0 ? one.targets : two.targets}}, {1}));
    expect_refused("pipeline: hash of weights on rank 1 along pp is ",
                   run({one}, {rank == 0 ? 1.0 : 0.5}));
    expect_refused(
        "pipeline: number of microbatches on rank 1 along pp is 2, expected 1, that of "
        "rank 0; give all ranks along the axis the same",
        run(std::vector<TrainingBatch>(rank + 1, one), std::vector<double>(rank + 1, 1)));
    expect_refused("pipeline: number of batches is 0, expected 1 to 2", run({}, {}));
    expect_refused("pipeline: number of runs with gradients on rank 1 along pp is 1, expected 0",
                   [&] {
                     rank == 0 ? pipeline.model.evaluate({one}, {1})
                               : pipeline.model.differentiate({one}, {1});
                   });
    {
      const NoGrad no_grad;
      expect_refused(
          "pipeline: gradients are off (no_grad), expected them on; call evaluate for "
          "losses alone",
          run({one}, {1}));
    }
    for (const NamedParameter& named : pipeline.model.named_parameters()) {
      EXPECT_FALSE(named.parameter->grad()) << named.name();
    }
    // Ranks may have no rows that their stages do not read.
    const TrainingBatch part =
        rank == 0 ? TrainingBatch{one.ids, {}} : TrainingBatch{{}, one.targets};
    EXPECT_EQ(pipeline.model.differentiate({part}, {1}), pipeline.model.differentiate({one}, {1}));
    Context::current().random.seed += static_cast<uint64_t>(rank);
    expect_refused("pipeline: seed of random numbers on rank 1 along pp is ", run({one}, {1}));
    expect_refused(
        "pipeline: program of rank 1 along pp is 1f1b, expected the steps of gpipe on "
        "rank 0; give all ranks one program",
        [&] { Pipeline(mesh, rank == 0 ? gpipe(2, 2) : one_forward_one_backward(2, 2)); });
  });
}

TEST(Agreement, RowsKeepTheOrderOfTheirCuts) {
  on_mesh({{"pp", 2}, {"a", 2}, {"b", 2}}, [](const DeviceMesh& mesh) {
    LittlePipeline pipeline(
        mesh, little_decoder(2), gpipe(2, 1), 0,
        [](TransformerModel& stage, const DeviceMesh& axes) { fully_shard(stage, axes); });
    const TrainingBatch whole = little_batch(8, 0, 0);
    const NamedPlacement rows[] = {{"a", Shard(0)}, {"b", Shard(0)}};
    const Placements plain{std::span<const NamedPlacement>(rows)};
    const Placements turned = plain.cut_in_order(0, {"b", "a"});
    const Tensor ids = distribute(whole.ids, mesh, plain);
    const std::vector<double> expected =
        pipeline.model.differentiate({{ids, distribute(whole.targets, mesh, plain)}}, {1});
    EXPECT_NEAR(
        pipeline.model.differentiate({{ids, distribute(whole.targets, mesh, turned)}}, {1})[0],
        expected[0], 1e-6);
    const Tensor sums = from_local(whole.targets, mesh, {Replicate(), Partial(), Replicate()});
    expect_refused("pipeline: rows are laid out as ", [&] {
      pipeline.model.differentiate({{ids, sums}}, {1});
    });
  });
}

TEST(Agreement, TensorsBetweenStagesLieOnTheirMesh) {
  std::array<std::string, 4> seen;
  const auto body = [&](const DeviceMesh& mesh) {
    Pipeline pipeline(mesh, gpipe(2, 1));
    const DeviceMesh other(pipeline.stage_mesh().communicator(), {{"x", 2}});
    const int own = pipeline.position();
    pipeline.add({.stage = own, .run = [&, own](const Tensors& inputs, int) {
                    if (own == 1) return Tensors{sum(inputs[0])};
                    return Tensors{distribute(ones({4}), other, {Shard(0)})};
                  }});
    try {
      pipeline.evaluate();
    } catch (const std::exception& error) {
      seen[static_cast<size_t>(mesh.rank())] = error.what();
      throw;
    }
  };
  EXPECT_THROW(on_mesh({{"pp", 2}, {"a", 2}, {"b", 1}}, body), std::invalid_argument);
  // The other rank of the stage may be the first to throw; then this one names it.
  EXPECT_TRUE(
      seen[0].ends_with("pipeline: mesh of a tensor between stages is mesh(x=2), expected "
                        "mesh(a=2, b=1), that of the stages"))
      << seen[0];
}

TEST(Agreement, TiedGradientsAccumulateAsOthersDo) {
  const TransformerConfig config = little_decoder(2, true);
  for (const char* schedule : {"gpipe", "zb"}) {
    for (const bool sharded : {false, true}) {
      const std::vector<MeshAxis> axes =
          sharded ? std::vector<MeshAxis>{{"pp", 2}, {"dp", 2}} : std::vector<MeshAxis>{{"pp", 2}};
      on_mesh(axes, [&](const DeviceMesh& mesh) {
        LittlePipeline pipeline(mesh, config, pipeline_program(schedule, 2, 2), 0,
                                sharded ? StageCut(shard_stage) : StageCut());
        differentiate(pipeline);
        const auto once = pipeline.values(true);
        differentiate(pipeline);
        differentiate(pipeline);
        for (const auto& [name, values] : pipeline.values(true)) {
          for (size_t i = 0; i < values.size(); ++i) {
            ASSERT_NEAR(values[i], 3 * once.at(name)[i], 1e-5) << name << ' ' << i << schedule;
          }
        }
      });
    }
  }
}

TEST(Agreement, TiesAreCutAlike) {
  on_mesh({{"pp", 2}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    LittlePipeline pipeline(mesh, little_decoder(2, true), gpipe(2, 2), 0,
                            [](TransformerModel& stage, const DeviceMesh& axes) {
                              for (const auto& [path, module] : stage.named_modules()) {
                                if (path != "model.embed_tokens" && path != "lm_head") continue;
                                parallelize(stage, axes["tp"], {{path, Colwise()}});
                              }
                            });
    std::vector<TrainingBatch> batches;
    for (int m = 0; m < 2; ++m) {
      const TrainingBatch batch = little_batch(2, 0, m);
      batches.push_back({on_rows(batch.ids, pipeline.model.stage_mesh()),
                         on_rows(batch.targets, pipeline.model.stage_mesh())});
    }
    const std::string expected = "pipeline: layout of lm_head.weight in stage 1 is ";
    expect_refused(expected, [&] { pipeline.model.differentiate(batches, {0.5, 0.5}); });
    expect_refused(expected, [&] {
      std::map<std::string, Tensor> own;
      for (const NamedParameter& named : pipeline.model.named_parameters()) {
        own.emplace(named.name(), named.parameter->value());
      }
      pipeline.model.pipeline().of_own_stages({own, {}}, {});
    });
  });
}

TEST(Agreement, TiesAreFrozenTogether) {
  on_mesh({{"pp", 2}}, [](const DeviceMesh& mesh) {
    LittlePipeline pipeline(mesh, little_decoder(2, true), gpipe(2, 2), 0);
    const auto freeze = [&](const std::string& part) {
      for (const NamedParameter& named : pipeline.model.named_parameters()) {
        if (named.name().find(part) != std::string::npos) named.parameter->set_trainable(false);
      }
    };
    freeze("embed_tokens");
    expect_refused(
        "pipeline: model.embed_tokens.weight is frozen, expected it trained as "
        "lm_head.weight is, to which it is tied; freeze both or none",
        [&] { differentiate(pipeline); });
    freeze("lm_head");
    differentiate(pipeline);
    EXPECT_GT(pipeline.model.clip_grad_norm(1), 0);
    // No parameter of the first stage is trained.
    if (mesh.rank() == 0) freeze("");
    for (const NamedParameter& named : pipeline.model.named_parameters()) {
      named.parameter->clear_grad();
    }
    differentiate(pipeline);
    EXPECT_GT(pipeline.model.gradient_norm().item(), 0);
    EXPECT_EQ(pipeline.model.gradient_norm().ndim(), 0);
  });
}

TEST(Agreement, AGradientOfATieIsInBothStages) {
  on_mesh({{"pp", 2}}, [](const DeviceMesh& mesh) {
    Pipeline pipeline(mesh, gpipe(2, 1));
    const int own = pipeline.position();
    auto linear = std::make_shared<Linear>(3, 3);
    linear->materialize();
    pipeline.add({.stage = own, .module = linear, .run = [=](const Tensors& inputs, int) {
                    const Tensor x = own == 0 ? ones({2, 3}).set_requires_grad() : inputs[0];
                    return Tensors{own == 0 ? mul(x, 2) : sum((*linear)(x))};
                  }});
    pipeline.tie({0, 1, "weight", "weight"});
    expect_refused(
        "pipeline: size of the gradient of weight is 9 in stage 1, "
        "expected none of the same dtype, as in stage 0",
        [&] { pipeline.run(); });
  });
}

}  // namespace
}  // namespace weft
