// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/checkpoint/sharded_model.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/ranks.h"

namespace weft {
namespace {

struct Strategy {
  std::vector<MeshAxis> axes;
  Placements placements;
};

const Strategy kTwoByTwo{{{"dp", 2}, {"tp", 2}}, {Shard(0), Shard(1)}};

/// Trains with dropout and recomputed activations, saves, trains on: the path, and the losses
/// after.
struct Interrupted {
  std::string path;
  std::vector<double> losses;
};

Interrupted interrupted(const Scratch& scratch, const Strategy& strategy, int steps, bool async) {
  Interrupted run;
  on_mesh(strategy.axes, [&](const DeviceMesh& mesh) {
    ShardedModel model(mesh, strategy.placements, 3);
    model.dropout_layer->p = 0.25;
    for (const auto& [name, child] : model.module->children()) child->set_recompute(true);
    CheckpointSaver saver(mesh.communicator(), scratch.path("saved"));
    model.train(4);
    const std::string path =
        async ? saver.save_async(4, model.training_state()) : saver.save(4, model.training_state());
    const std::vector<double> losses = model.train(steps);
    saver.wait();
    if (mesh.rank() == 0) run = {path, losses};
  });
  return run;
}

std::vector<double> resumed(const std::string& path, const Strategy& strategy, int steps) {
  std::vector<double> losses;
  on_mesh(strategy.axes, [&](const DeviceMesh& mesh) {
    ShardedModel model(mesh, strategy.placements, 99);
    model.dropout_layer->p = 0.25;
    for (const auto& [name, child] : model.module->children()) child->set_recompute(true);
    load(path, model.training_state());
    EXPECT_EQ(model.step, 4);
    const std::vector<double> own = model.train(steps);
    if (mesh.rank() == 0) losses = own;
  });
  return losses;
}

TEST(Resume, IsBitEqualOnTheSameMesh) {
  const Scratch scratch;
  const Interrupted before = interrupted(scratch, kTwoByTwo, 50, true);
  ASSERT_EQ(inspect_checkpoint(before.path).verdict, Verdict::complete);
  EXPECT_EQ(resumed(before.path, kTwoByTwo, 50), before.losses);
}

TEST(Resume, GoesOnAlikeOnAnyMeshAndStrategy) {
  const Scratch scratch;
  const Interrupted before = interrupted(scratch, kTwoByTwo, 5, false);
  const std::vector<Strategy> others = {
      {{{"dp", 1}}, {Replicate()}},
      {{{"dp", 3}}, {Shard(0)}},
      {{{"dp", 4}}, {Shard(0)}},
      {{{"dp", 4}}, {Replicate()}},
      {{{"dp", 2}, {"tp", 2}}, {Replicate(), Shard(0)}},
      {{{"dp", 2}, {"tp", 2}}, Placements{Shard(0), Shard(0)}.cut_in_order(0, {"tp", "dp"})}};
  for (const Strategy& other : others) {
    expect_values(resumed(before.path, other, 5), before.losses, 1e-5);
  }
}

TEST(Resume, AsyncSavesWhatWasThereWhenItWasCalled) {
  const Scratch scratch;
  on_mesh({{"dp", 2}}, [&](const DeviceMesh& mesh) {
    const Communicator world = mesh.communicator();
    for (const int64_t budget : {int64_t{-1}, int64_t{0}, int64_t{100}, int64_t{1} << 20}) {
      CheckpointSaver saver(world, scratch.path(concat("saved", budget)), {.async_bytes = budget});
      StateDict state;
      state.tensors.emplace("w", numbers({40, 7}, 1, Sharding(mesh, {Shard(0)})));
      std::string path;
      for (int step = 0; step < 5; ++step) {
        fill_(state.tensors["w"], step);
        path = saver.save_async(step, state);
        // A training step would overwrite the tensor.
        fill_(state.tensors["w"], -1);
      }
      saver.wait();
      EXPECT_FALSE(saver.is_saving());
      world.barrier();
      EXPECT_EQ(inspect_checkpoint(path).verdict, Verdict::complete);
      load(path, state);
      EXPECT_EQ(state.tensors["w"].to_vector<double>()[0], 4);
    }
  });
}

TEST(Resume, AsyncErrorsComeAtTheNextCall) {
  const Scratch scratch;
  run_ranks(1, [&](Communicator world) {
    StateDict state;
    state.tensors.emplace("w", numbers({40, 7}));
    CheckpointSaver saver(world, scratch.path("saved"));
    int failures = 0;
    // Its directory goes while it writes, unless it is faster.
    for (int64_t step = 1; step < 50 && failures == 0; ++step) {
      const std::string path = saver.save_async(step, state);
      std::filesystem::remove_all(path);
      failures += error_of<std::runtime_error>([&] { saver.wait(); }) != "nothing";
    }
    EXPECT_EQ(failures, 1);
    // The next save works again.
    const std::string path = saver.save(100, state);
    EXPECT_EQ(inspect_checkpoint(path).verdict, Verdict::complete);
  });
}

}  // namespace
}  // namespace weft
