// SPDX-License-Identifier: Apache-2.0
// MoE blocks whose shared expert and parts run on two streams, compared with the CPU's.
#include <optional>

#include "src/device/cuda/runtime.h"
#include "tests/cuda/device.h"
#include "tests/ops/agreement.h"
#include "tests/support/ranks.h"
#include "weft/error.h"
#include "weft/fsdp.h"
#include "weft/moe.h"
#include "weft/tensor_parallel.h"

namespace weft {

class DeviceMoe : public OnGpu {};

namespace {

struct Case {
  std::vector<MeshAxis> axes = {{"ep", 2}};
  int64_t chunks = 1;
  bool shares = true;
  /// The modules that run again in backward: "", "block" or "experts".
  std::string recomputes = {};
  /// Experts are sharded as a unit of their own, which stays gathered.
  bool has_unit = false;
  /// The stream that is late.
  std::optional<StreamRole> late = {};
};

std::string in_words(const Case& one) {
  return concat(one.axes.size(), " axes, ", one.chunks, " chunks, shares ", one.shares,
                ", recomputes ", one.recomputes, ", own unit ", one.has_unit, ", late ",
                one.late ? static_cast<int>(*one.late) : -1);
}

std::unique_ptr<MoE> block_of(const Case& one, const DeviceMesh& mesh, Device device) {
  MoEConfig config{.dim = 12, .width = 7, .experts = 5};
  config.router.top_k = 3;
  config.chunks = one.chunks;
  if (one.shares) config.shared_width = 9, config.shared_gate = true;
  auto block = std::make_unique<MoE>(config);
  parallelize(*block, mesh["ep"], {{"experts", ExpertParallel()}});
  if (one.axes[0].name == "shard") {
    FullyShardOptions options;
    options.dp_mesh_dims = DataParallelMeshDims{.shard = {"shard", "ep"}};
    options.shard_placement_fn = [mesh](const NamedParameter& named) {
      const bool is_cut = named.name().starts_with("experts.");
      if (!is_cut) return ShardPlacement{};
      return ShardPlacement{.mesh = mesh["shard"], .strategy = Strategy::full_shard()};
    };
    if (one.has_unit) {
      options.reshard_after_forward = false;
      fully_shard(block->module("experts"), mesh["shard"], {.reshard_after_forward = false});
    }
    fully_shard(*block, mesh, options);
  }
  if (one.recomputes == "block") block->set_recompute(true);
  if (one.recomputes == "experts") block->module("experts").set_recompute(true);
  block->materialize(device);
  return block;
}

/// Steps of forward and backward of two blocks, one after the other, on one rank.
class Steps {
 public:
  Steps(const Case& one, const DeviceMesh& mesh, Device device)
      : case_(one), mesh_(mesh), device_(device) {
    manual_seed(7);
    for (int i = 0; i < 2; ++i) blocks_.push_back(block_of(one, mesh, device));
  }

  /// Returns the output, and the gradients of the input and of all parameters.
  std::vector<Array> step(unsigned salt) {
    std::vector<NamedPlacement> rows;
    for (const MeshAxis& axis : case_.axes) rows.push_back({axis.name, Shard(0)});
    const auto on_rows = [&](unsigned seed) {
      const Array array = random_array({6, 5, 12}, -1, 1, f32, seed);
      return distribute(array.on(), mesh_, Placements(rows)).to(device_);
    };
    const Tensor x = on_rows(salt).set_requires_grad();
    delay();
    Tensor y = x;
    for (auto& block : blocks_) y = add((*block)(y), mul(y, 0.5));
    delay();
    backward({y}, {on_rows(salt + 1)});
    std::vector<Array> values = {whole(y.detach()), whole(x.grad())};
    for (auto& block : blocks_) {
      for (const ParameterPtr& parameter : block->parameters()) {
        values.push_back(whole(parameter->grad()));
        parameter->clear_grad();
      }
    }
    return values;
  }

  std::vector<Array> parameters() const {
    std::vector<Array> values;
    for (const auto& block : blocks_) {
      for (const ParameterPtr& one : block->parameters()) {
        values.push_back(whole(one->value().detach()));
      }
    }
    return values;
  }

 private:
  void delay() const {
    if (device_ == gpu && case_.late) cuda::delay(stream_for(gpu, *case_.late), 2000);
  }

  Case case_;
  DeviceMesh mesh_;
  Device device_;
  std::vector<std::unique_ptr<MoE>> blocks_;
};

void expect_as_on_the_cpu(const Case& one) {
  SCOPED_TRACE(in_words(one));
  on_mesh(one.axes, [&](const DeviceMesh& mesh) {
    Steps here(one, mesh, cpu), there(one, mesh, gpu);
    const auto values = here.parameters(), values_there = there.parameters();
    for (size_t i = 0; i < values.size(); ++i) {
      expect_close(values_there[i], values[i], 1e-6, concat("parameter ", i));
    }
    for (unsigned step = 0; step < 3; ++step) {
      const std::vector<Array> expected = here.step(step), actual = there.step(step);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        expect_close(actual[i], expected[i], 1e-5, concat("step ", step, " array ", i));
      }
    }
  });
}

}  // namespace

TEST_F(DeviceMoe, EqualsTheCpu) {
  for (const int64_t chunks : {1, 2, 3, 9}) {
    for (const bool shares : {false, true}) {
      expect_as_on_the_cpu({.chunks = chunks, .shares = shares});
    }
  }
  expect_as_on_the_cpu({.axes = {{"ep", 1}}, .chunks = 2});
  expect_as_on_the_cpu({.axes = {{"ep", 3}}, .chunks = 2});
}

TEST_F(DeviceMoe, EqualsTheCpuFullySharded) {
  for (const int64_t chunks : {1, 2, 3}) {
    expect_as_on_the_cpu({.axes = {{"shard", 2}, {"ep", 2}}, .chunks = chunks});
  }
  expect_as_on_the_cpu({.axes = {{"shard", 3}, {"ep", 1}}, .chunks = 2});
  for (const StreamRole late : {StreamRole::side, StreamRole::gather}) {
    const std::vector<MeshAxis> axes = {{"shard", 2}, {"ep", 2}};
    expect_as_on_the_cpu({.axes = axes, .chunks = 3, .has_unit = true, .late = late});
  }
}

TEST_F(DeviceMoe, EqualsTheCpuRecomputed) {
  for (const char* what : {"block", "experts"}) {
    for (const int64_t chunks : {1, 2, 3}) {
      expect_as_on_the_cpu({.chunks = chunks, .recomputes = what});
    }
  }
  const std::vector<MeshAxis> axes = {{"shard", 2}, {"ep", 2}};
  expect_as_on_the_cpu({.axes = axes, .chunks = 2, .recomputes = "block"});
  for (const int64_t chunks : {1, 3}) {
    expect_as_on_the_cpu(
        {.axes = axes, .chunks = chunks, .recomputes = "experts", .has_unit = true});
  }
}

TEST_F(DeviceMoe, DelaysOfAnyStreamChangeNothing) {
  for (const StreamRole late :
       {StreamRole::compute, StreamRole::side, StreamRole::gather, StreamRole::scatter}) {
    expect_as_on_the_cpu({.axes = {{"shard", 2}, {"ep", 2}}, .chunks = 3, .late = late});
    expect_as_on_the_cpu({.chunks = 2, .late = late});
    expect_as_on_the_cpu({.chunks = 1, .recomputes = "experts", .late = late});
  }
}

/// Each stream finds the memory that it freed.
TEST_F(DeviceMoe, TakesNoMoreMemoryInLaterSteps) {
  for (const int64_t chunks : {1, 2}) {
    on_mesh({{"ep", 2}}, [&](const DeviceMesh& mesh) {
      Steps there({.chunks = chunks}, mesh, gpu);
      for (int step = 0; step < 4; ++step) there.step(1);
      const int64_t before = memory_statistics(DeviceKind::cuda).fresh_allocations;
      for (int step = 0; step < 6; ++step) there.step(1);
      EXPECT_EQ(memory_statistics(DeviceKind::cuda).fresh_allocations, before) << chunks;
    });
  }
}

}  // namespace weft
