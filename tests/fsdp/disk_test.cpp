// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/fsdp/little_llama.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/checkpoint.h"
#include "weft/context.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"
#include "weft/state_dict.h"

namespace weft {
namespace {

/// A sharded run with the states that rest on disk.
struct DiskWay : ShardedWay {
  bool parameters = true, gradients = true, state = true;
  bool recomputes = false;
  DType moments = f32;
  std::vector<std::string> kept = {};
};

std::vector<DiskWay> disk_ways() {
  std::vector<DiskWay> all;
  const MixedPrecision half{.compute = bf16, .reduce = f32};
  for (int n : {1, 2, 3, 4}) {
    const std::vector<MeshAxis> dp{{"dp", n}};
    all.push_back({"full_shard", dp});
    all.push_back({"state", dp, {}, false, false});
    all.push_back({"parameters", dp, {}, true, false, false});
    all.push_back({"gradients", dp, {}, false, true, false});
    all.push_back({"half", dp, {.precision = half}, true, true, true, true, bf16});
    all.push_back({"kept", dp, {}, false, false, false, true, f32, costly_ops()});
    all.push_back({"quantized", dp, {.quantization = {.gather = i8, .reduce = i8, .block = 8}}});
    all.push_back({"zero2", dp, {.strategy = Strategy::zero2()}});
    all.push_back({"zero1", dp, {.strategy = Strategy::zero1()}});
    all.push_back({"ddp", dp, {.strategy = Strategy::ddp(), .bucket_bytes = 3000}});
  }
  const std::vector<MeshAxis> grid{{"across", 2}, {"within", 2}};
  all.push_back({"stages",
                 grid,
                 {.quantization = {.gather = i8, .reduce = i8, .block = 8, .within = "within"}}});
  all.push_back({"hsdp", grid, {.strategy = Strategy::hsdp()}});
  all.push_back({"kept_within", grid, {.reshard_after_forward = "within"}});
  return all;
}

/// The losses of each step, the norms, and all elements of the parameters in the end.
using Trace = std::vector<std::vector<float>>;

Trace trained(const DiskWay& way, const std::string& directory, bool on_disk) {
  Trace trace;
  run_ranks(way.ranks(), [&](Communicator world) {
    const DeviceMesh mesh(world, way.axes);
    TransformerModel model(little_llama());
    for (Module* block : model.blocks()) block->set_recompute(way.recomputes, way.kept);
    FullyShardOptions options = way.options;
    const Tier disk = Tier::disk(directory);
    if (on_disk && way.parameters) options.offload.parameters = disk;
    if (on_disk && way.gradients) options.offload.gradients = disk;
    if (on_disk && way.recomputes) options.offload.activations = disk;
    shard(model, mesh, options);
    const FullyShardBytes predicted = predicted_bytes(model, 2);
    model.materialize();
    AdamWOptions adamw{.learning_rate = 1e-2, .moments = way.moments};
    adamw.decays = [](const NamedParameter& named) { return named.parameter->shape().ndim() > 1; };
    if (on_disk && way.state) adamw.offload = disk;
    AdamW optimizer(model.named_parameters(), adamw);
    Trace own;
    for (int step = 0; step < 4; ++step) {
      for (int micro = 0; micro < 2; ++micro) {
        NoSync hold(model, micro == 0);
        const int salt = step * 2 + micro;
        Tensor loss = model.loss(batch_of(mesh, 4, salt), batch_of(mesh, 4, salt + 1));
        mul(loss, 0.5).backward();
        own.push_back(loss.detach().full_tensor().to_vector<float>());
      }
      const Tensor norm = gradient_norm(model.parameters());
      own.push_back(norm.to_vector<float>());
      optimizer.step(clip_scale(norm, 0.5));
      optimizer.zero_grad();
    }
    const FullyShardBytes measured = measured_bytes(model);
    EXPECT_EQ(measured.parameters, predicted.parameters);
    EXPECT_EQ(measured.gradients, predicted.gradients);
    EXPECT_EQ(measured.buffers, predicted.buffers);
    for (const ParameterPtr& parameter : model.parameters()) {
      EXPECT_EQ(rests_on_disk(parameter->value()), on_disk && way.parameters);
      own.push_back(in_memory(parameter->value()).full_tensor().to_vector<float>());
    }
    if (world.rank() == 0) trace = std::move(own);
  });
  return trace;
}

class Disk : public testing::TestWithParam<DiskWay> {};

TEST_P(Disk, LearnsTheSameBits) {
  const Scratch scratch;
  const Trace expected = trained(GetParam(), scratch.root(), false);
  const Trace found = trained(GetParam(), scratch.root(), true);
  ASSERT_GT(expected.size(), 8U);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i] == expected[i]) << i;
  EXPECT_TRUE(std::filesystem::is_empty(scratch.root()));
}

INSTANTIATE_TEST_SUITE_P(All, Disk, testing::ValuesIn(disk_ways()), name_of_way<DiskWay>);

void take_step(TransformerModel& model, AdamW& optimizer, const DeviceMesh& mesh, int salt) {
  model.loss(batch_of(mesh, 6, salt), batch_of(mesh, 6, salt + 1)).backward();
  optimizer.step();
  optimizer.zero_grad();
}

/// Saves on `saver` ranks after two steps, loads on `loader` ranks, and takes a third.
TEST(Disk, GoesOnFromCheckpointsWithTheSameBits) {
  for (const bool saves_from_disk : {false, true}) {
    for (const bool loads_to_disk : {false, true}) {
      const Scratch scratch;
      std::vector<std::vector<float>> ends[2];
      for (int turn = 0; turn < 2; ++turn) {
        run_ranks(turn == 0 ? 3 : 2, [&](Communicator world) {
          const DeviceMesh mesh(world, {{"dp", world.size()}});
          const bool on_disk = turn == 0 ? saves_from_disk : loads_to_disk;
          const Tier tier = on_disk ? Tier::disk(scratch.root()) : Tier();
          TransformerModel model(little_llama());
          shard(model, mesh, {.offload = {tier, tier}});
          model.materialize();
          AdamW optimizer(model.named_parameters(), {.learning_rate = 1e-2, .offload = tier});
          TrainingState state;
          state.add("model", model);
          state.add("optimizer", optimizer);
          if (turn == 0) {
            for (int step = 0; step < 2; ++step) take_step(model, optimizer, mesh, step);
            CheckpointSaver saver(world, scratch.path("run"));
            saver.save_async(2, state.state_dict());
            saver.wait();
          } else {
            load(scratch.path("run"), state);
          }
          std::vector<std::vector<float>> all;
          for (const auto& [name, tensor] : state.state_dict().tensors) {
            all.push_back(in_memory(tensor).full_tensor().to_vector<float>());
          }
          if (world.rank() == 0) ends[turn] = all;
          if (turn == 1) take_step(model, optimizer, mesh, 2);
        });
      }
      ASSERT_FALSE(ends[0].empty());
      EXPECT_EQ(ends[0], ends[1]) << saves_from_disk << loads_to_disk;
    }
  }
}

/// Losses of three steps of Lamb and the parameters in the end, with the state or the rest on disk.
static Trace trained_by_lamb(int ranks, const Tier& state, const Tier& rest) {
  Trace trace;
  run_ranks(ranks, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", world.size()}});
    TransformerModel model(little_llama());
    for (Module* block : model.blocks()) block->set_recompute(true, {});
    shard(model, mesh, {.offload = {rest, rest, rest}});
    model.materialize();
    Lamb optimizer(model.named_parameters(), {.learning_rate = 1e-2, .offload = state});
    Trace own;
    for (int step = 0; step < 3; ++step) {
      const Tensor loss = model.loss(batch_of(mesh, 6, step), batch_of(mesh, 6, step + 1));
      loss.backward();
      own.push_back(loss.detach().full_tensor().to_vector<float>());
      optimizer.step(clip_scale(gradient_norm(model.parameters()), 0.5));
      optimizer.zero_grad();
    }
    EXPECT_EQ(rests_on_disk(optimizer.state(0)[0]), state.is_disk());
    for (const ParameterPtr& parameter : model.parameters()) {
      own.push_back(in_memory(parameter->value()).full_tensor().to_vector<float>());
    }
    if (world.rank() == 0) trace = std::move(own);
  });
  return trace;
}

TEST(Disk, LambLearnsTheSameBits) {
  const Scratch scratch;
  const Tier disk = Tier::disk(scratch.root());
  for (const int ranks : {1, 2, 3}) {
    const Trace expected = trained_by_lamb(ranks, {}, {});
    ASSERT_GT(expected.size(), 3U);
    EXPECT_EQ(trained_by_lamb(ranks, disk, {}), expected) << ranks;
    EXPECT_EQ(trained_by_lamb(ranks, {}, disk), expected) << ranks;
    EXPECT_EQ(trained_by_lamb(ranks, disk, disk), expected) << ranks;
  }
}

/// Arrays of several windows, the last of which is short, with norms over all ranks.
TEST(Disk, LambUpdatesWindowByWindow) {
  const Scratch scratch;
  constexpr int64_t kRows = (int64_t{7} << 19) + 9;
  for (const int ranks : {1, 3}) {
    Trace ends[2];
    for (const bool on_disk : {false, true}) {
      run_ranks(ranks, [&](Communicator world) {
        const DeviceMesh mesh(world, {{"dp", world.size()}});
        manual_seed(5);
        std::vector<NamedParameter> all;
        for (const int64_t rows : {kRows, int64_t{2}}) {
          all.push_back({{concat("p", rows)},
                         std::make_shared<Parameter>(Shape{rows}, f32, Parameter::Initializer())});
          all.back().parameter->set_value(distribute(normal({rows}), mesh, {Shard(0)}));
        }
        const Tier tier = on_disk ? Tier::disk(scratch.root()) : Tier();
        Lamb optimizer(all, {.learning_rate = 1e-2, .offload = tier});
        for (int step = 0; step < 3; ++step) {
          for (const NamedParameter& one : all) {
            const Tensor gradient = normal(one.parameter->shape());
            one.parameter->value().set_grad(distribute(gradient, mesh, {Shard(0)}));
          }
          optimizer.step();
        }
        Trace own;
        for (size_t i = 0; i < all.size(); ++i) {
          own.push_back(all[i].parameter->value().detach().full_tensor().to_vector<float>());
          own.push_back(in_memory(optimizer.state(i)[1]).full_tensor().to_vector<float>());
        }
        if (world.rank() == 0) ends[on_disk] = own;
      });
    }
    ASSERT_EQ(ends[0].size(), 4U);
    for (size_t i = 0; i < ends[0].size(); ++i) EXPECT_TRUE(ends[0][i] == ends[1][i]) << i;
  }
}

TEST(Disk, RefusesAStridedGradientWithItsState) {
  const Scratch scratch;
  const auto parameter = std::make_shared<Parameter>(Shape{3, 5}, f32, Parameter::Initializer());
  parameter->set_value(normal({3, 5}));
  const std::vector<float> before = parameter->value().to_vector<float>();
  parameter->value().set_grad(normal({5, 3}).t());
  AdamW optimizer({{{"p"}, parameter}}, {.offload = Tier::disk(scratch.root())});
  EXPECT_EQ(error_of([&] { optimizer.step(); }),
            "optimizer: an array [3, 5] whose state or value rests on disk has strides, expected a "
            "dense one");
  EXPECT_EQ(parameter->value().to_vector<float>(), before);
}

/// State passes through the page cache where it fits; here a value passes by it, in three windows.
TEST(Disk, UpdatesPastThePageCache) {
  const Scratch scratch;
  constexpr int64_t kElements = (int64_t{5} << 19) + 3;
  std::vector<float> ends[2];
  for (const bool on_disk : {false, true}) {
    manual_seed(9);
    Tensor value = normal({kElements});
    std::shared_ptr<DiskMemory> memory;
    if (on_disk) {
      memory = DiskMemory::make(scratch.root(), {{"before", 5}, {"p", 4 * kElements}});
      const Tensor there = tensor_in(memory->storage(), memory->offset(1) / int64_t{sizeof(float)},
                                     {kElements}, f32);
      write_to_disk(there, value);
      value = there;
    }
    const auto parameter =
        std::make_shared<Parameter>(Shape{kElements}, f32, Parameter::Initializer());
    parameter->set_value(value);
    SGD optimizer({{{"p"}, parameter}}, {.learning_rate = 0.1});
    for (int step = 0; step < 2; ++step) {
      parameter->value().set_grad(normal({kElements}));
      optimizer.step();
    }
    ends[on_disk] = in_memory(parameter->value()).to_vector<float>();
  }
  EXPECT_TRUE(ends[0] == ends[1]);
}

TEST(Disk, ErrorsNameTheDirectory) {
  const std::string missing = error_of([] {
    auto parameter = std::make_shared<Parameter>(Shape{3}, f32, [](const Tensor&) {});
    parameter->materialize(cpu);
    AdamW optimizer({{{"p"}, parameter}}, {.offload = Tier::disk("/nonexistent/folder")});
    optimizer.state(0);
  });
  EXPECT_TRUE(has(missing, "offload: no file can be made in \"/nonexistent/folder\""));
}

/// A copy for another set of parameters has state on disk too.
TEST(Disk, StateIsCopied) {
  const Scratch scratch;
  const auto made = [] {
    auto parameter = std::make_shared<Parameter>(Shape{1000}, f32,
                                                 [](const Tensor& value) { fill_(value, 0.5); });
    parameter->materialize(cpu);
    return parameter;
  };
  const ParameterPtr first = made(), second = made();
  AdamW optimizer({{{"p"}, first}}, {.offload = Tier::disk(scratch.root())});
  first->value().set_grad(ones({1000}));
  optimizer.step();
  const auto copy = optimizer.copy_for({second});
  EXPECT_EQ(in_memory(copy->state(0)[1]).to_vector<float>(),
            in_memory(optimizer.state(0)[1]).to_vector<float>());
  EXPECT_NE(in_memory(copy->state(0)[1]).to_vector<float>()[7], 0);
  StateDict state = state_dict(*copy);
  optimizer.step();
  load_state_dict(optimizer, state);
  EXPECT_EQ(in_memory(copy->state(0)[0]).to_vector<float>(),
            in_memory(optimizer.state(0)[0]).to_vector<float>());
}

}  // namespace
}  // namespace weft
