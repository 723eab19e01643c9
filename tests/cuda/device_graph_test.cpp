// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cuda/device.h"
#include "weft/context.h"
#include "weft/graph.h"
#include "weft/mesh.h"
#include "weft/ops.h"

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
    // What others take and write meanwhile is not the graph's.
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

static std::string refusal_of(Graph& graph, const std::function<void()>& work) {
  try {
    for (int i = 0; i < 3; ++i) graph.run(work);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "none";
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
  // Nothing of it remains: the device computes as before.
  EXPECT_EQ(on_host(add(x, 1)), (std::vector<double>{1, 1, 1}));
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const Tensor parts = distribute(ones({4}), mesh, {Shard(0)}).to(gpu);
    Graph graph(gpu);
    const std::string refusal = refusal_of(graph, [&] { parts.full_tensor(); });
    EXPECT_NE(refusal.find("exchanges with other ranks"), std::string::npos) << refusal;
  });
}

TEST_F(DeviceGraph, IsOfAGpuOnly) { EXPECT_THROW(Graph{cpu}, std::invalid_argument); }

}  // namespace weft
