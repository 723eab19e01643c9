// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cuda/device.h"
#include "tests/cuda/graph_steps.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/graph.h"
#include "weft/layers.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"
#include "weft/storage.h"

namespace weft {

class DeviceGraph : public OnGpu {};

static std::vector<double> on_host(const Tensor& tensor) {
  return tensor.to(cpu).to_vector<double>();
}

TEST_F(DeviceGraph, PlaysWhatItRecordedWithWhatIsThereThen) {
  const Tensor in = zeros({5}, {.device = gpu});
  Tensor out;
  Graph graph(gpu);
  int calls = 0;
  for (int i = 0; i < 6; ++i) {
    const std::vector<double> values{1.0 * i, 2, 3, 4, 5};
    copy_(in, from_values(values, {5}, {}).to(gpu));
    graph.run([&] {
      ++calls;
      out = add(mul(in, in), in);
    });
    // Memory that other ops allocate and write meanwhile does not belong to the graph.
    const Tensor other = mul(add(in, 7), 3);
    EXPECT_EQ(on_host(out), (std::vector<double>{1.0 * i * i + i, 6, 12, 20, 30})) << i;
    EXPECT_EQ(on_host(other)[1], 27);
  }
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(graph.is_recorded());
}

TEST_F(DeviceGraph, AddsUpInPlaceEachTime) {
  const Tensor sum = zeros({3}, {.device = gpu});
  Graph graph(gpu);
  for (int i = 0; i < 7; ++i) graph.run([&] { copy_(sum, add(sum, 2)); });
  EXPECT_EQ(on_host(sum), (std::vector<double>{14, 14, 14}));
}

TEST_F(DeviceGraph, KeepsTheMemoryThatItUses) {
  const Tensor in = ones({1000}, {.device = gpu});
  Tensor out;
  Graph graph(gpu);
  for (int i = 0; i < 3; ++i) {
    graph.run([&] {
      // Also writes to memory that another tensor used earlier in the record.
      out = mul(in, 5);
      out = add(out, 1);
    });
  }
  // Drops the record's result, and returns all cached memory to the device.
  out = {};
  release_cached_memory();
  std::vector<Tensor> others;
  for (int i = 0; i < 4; ++i) others.push_back(mul(in, 7));
  graph.run([] {});
  for (const Tensor& other : others) EXPECT_EQ(on_host(other), std::vector<double>(1000, 7));
}

static std::string refusal_of(Graph& graph, const std::function<void()>& work) {
  return error_of([&] {
    for (int i = 0; i < 3; ++i) graph.run(work);
  });
}

TEST_F(DeviceGraph, KeepsNotWhatTheRunsBeforeUsed) {
  const Tensor in = ones({1 << 20}, {.device = gpu});
  Tensor out;
  Graph graph(gpu);
  int64_t kept = 0;
  for (int i = 0; i < 4; ++i) {
    graph.run([&] { out = mul(add(in, 1), 3); });
    const MemoryStatistics now = memory_statistics(DeviceKind::cuda);
    if (i == 1) kept = now.cached + now.total.current;
    EXPECT_LE(i < 2 ? 0 : now.cached + now.total.current, kept + (1 << 20)) << i;
  }
}

TEST_F(DeviceGraph, RefusesWhatIsNotTheSameEachTime) {
  const Tensor x = zeros({3}, {.device = gpu});
  Graph reads(gpu), draws(gpu), writes(gpu);
  EXPECT_NE(refusal_of(reads, [&] { x.to(cpu); }).find("between the host and a GPU"),
            std::string::npos);
  EXPECT_NE(refusal_of(writes, [&] { copy_(x, zeros({3})); }).find("between the host and a GPU"),
            std::string::npos);
  EXPECT_NE(refusal_of(draws, [&] { normal({3}, 0, 1, {.device = gpu}); }).find("random numbers"),
            std::string::npos);
  // The failed recording leaves no trace: the device computes as before.
  EXPECT_EQ(on_host(add(x, 1)), (std::vector<double>{1, 1, 1}));
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const Tensor parts = distribute(ones({4}), mesh, {Shard(0)}).to(gpu);
    Graph graph(gpu);
    const std::string refusal = refusal_of(graph, [&] { parts.full_tensor(); });
    EXPECT_NE(refusal.find("exchanges with threads of this process"), std::string::npos) << refusal;
  });
}

TEST_F(DeviceGraph, UpdatesAsTheOptimizerDoesByItself) {
  Recipe recipe{.axes = {{"dp", 1}}};
  EXPECT_EQ(numbers_of_steps(true, recipe), numbers_of_steps(false, recipe));
  // This run has bf16 copies of the parameters, which are refreshed when the parameters change.
  recipe.options.precision = {.compute = bf16, .gather = bf16, .reduce = f32};
  EXPECT_EQ(numbers_of_steps(true, recipe), numbers_of_steps(false, recipe));
}

TEST_F(DeviceGraph, RefusesToRecordAnotherOrTheCpu) {
  const Tensor x = zeros({3}, {.device = gpu});
  Graph inner(gpu), outer(gpu);
  for (int i = 0; i < 3; ++i) inner.run([&] { copy_(x, add(x, 1)); });
  EXPECT_NE(refusal_of(outer, [&] { inner.run([] {}); }).find("runs a graph"), std::string::npos);
  run_ranks(1, [&](Communicator) {
    Linear model(4, 3);
    model.materialize(cpu);
    AdamW optimizer(model.named_parameters());
    Graph graph(gpu);
    const std::string refusal = refusal_of(graph, [&] {
      sum(model(ones({2, 4}))).backward();
      optimizer.step();
    });
    EXPECT_NE(refusal.find("parameter weight is on cpu"), std::string::npos) << refusal;
  });
}

/// Returns the error of an optimizer's steps in a graph when its learning rate changes.
template <class Optimizer> static std::string refused_steps() {
  std::string refusal;
  run_ranks(1, [&](Communicator) {
    Linear model(4, 3);
    model.materialize(gpu);
    Optimizer optimizer(model.named_parameters());
    const Tensor x = ones({2, 4}, {.device = gpu});
    Graph graph(gpu);
    const auto work = [&] {
      optimizer.zero_grad();
      sum(model(x)).backward();
      optimizer.step();
    };
    refusal = refusal_of(graph, work);
    if (refusal != "nothing") return;
    optimizer.set_learning_rate(0.5);
    refusal = refusal_of(graph, work);
  });
  return refusal;
}

TEST_F(DeviceGraph, RefusesUpdatesThatWouldNotBeWhatTheySay) {
  EXPECT_EQ(refused_steps<AdamW>(), "nothing");
  EXPECT_EQ(refused_steps<SGD>(),
            "optimizer: the learning rate is 0.5, expected 0.01, that of the graph's record");
  EXPECT_EQ(refused_steps<Lamb>(),
            "optimizer: a graph records a step of another class, expected AdamW or SGD");
}

TEST_F(DeviceGraph, IsOfAGpuOnly) { EXPECT_THROW(Graph{cpu}, std::invalid_argument); }

}  // namespace weft
