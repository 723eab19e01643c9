// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/op_log.h"

#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"

namespace weft {
namespace {

/// "op kind over axes" of each step, prefixed with "-" in backward.
std::vector<std::string> words_of(const OpLog& log) {
  std::vector<std::string> words;
  for (const Movement& movement : log.movements) {
    for (const MovementStep& step : movement.steps) {
      words.push_back((movement.backward ? "-" : "") + movement.what + " " + step.kind + " over " +
                      step.axes + " " + step.from + " -> " + step.to);
    }
  }
  return words;
}

int64_t bytes_of(const OpLog& log) {
  int64_t bytes = 0;
  for (const Movement& movement : log.movements) {
    for (const MovementStep& step : movement.steps) bytes += step.bytes;
  }
  return bytes;
}

/// All kinds of movement: operands, stages, fetched slices, gradients, explicit redistributions.
void move_things(const DeviceMesh& mesh, Device device) {
  const auto made = [&](const Shape& shape, const Placements& placements) {
    return zeros(shape, {.device = device, .sharding = Sharding(mesh, placements)});
  };
  Tensor w = made({6, 5}, {Shard(0)});
  w.set_requires_grad();
  const Tensor y = matmul(made({4, 5}, {Shard(1)}), w.t());
  const Tensor z = y.redistribute({Replicate()}) + logsumexp(made({4, 5}, {Shard(1)}), 1, true);
  sum(z).backward();
  slice(made({7}, {Shard(0)}), 0, 1, 6);
}

TEST(Movements, AreLoggedToTheByte) {
  for (int ranks : {1, 2, 3}) {
    on_mesh({{"x", ranks}}, [](const DeviceMesh& mesh) {
      OpLog log;
      const int64_t received = bytes_received(mesh, [&] { move_things(mesh, cpu); });
      EXPECT_EQ(received, bytes_of(log));
      EXPECT_EQ(log.movements.empty(), mesh.size() == 1);
    });
  }
}

/// On a device without memory the same log is written, and nothing moves.
TEST(Movements, AreLoggedWithoutMemory) {
  on_mesh({{"x", 3}}, [](const DeviceMesh& mesh) {
    std::vector<std::string> words;
    {
      OpLog log;
      move_things(mesh, cpu);
      words = words_of(log);
    }
    OpLog log;
    EXPECT_EQ(bytes_received(mesh, [&] { move_things(mesh, meta); }), 0);
    EXPECT_EQ(words_of(log), words);
  });
}

TEST(Movements, SayWhoAskedAndWhatRan) {
  const DeviceMesh mesh(fake_world(0, 2, 8, false), {{"x", 2}});
  const int first = 0, second = 0;
  OpLog log;
  Tensor x = zeros({4, 6}, {.sharding = Sharding(mesh, {Shard(0)})});
  x.set_requires_grad();
  Tensor whole, weighted;
  {
    RunScope scope(&first);
    whole = x.redistribute({Replicate()});
  }
  {
    RunScope scope(&second);
    const Tensor weight = zeros({5, 6}, {.sharding = Sharding(mesh, {Shard(0)})});
    weighted = matmul(whole, weight.t()).redistribute({Replicate()});
  }
  sum(weighted).backward();
  EXPECT_EQ(words_of(log),
            (std::vector<std::string>{"redistribute all_gather over x [S(0)] -> [R]",
                                      "redistribute all_gather over x [S(1)] -> [R]",
                                      "-redistribute reduce_scatter over x [P(sum)] -> [S(0)]"}));
  EXPECT_EQ(log.movements[0].scope, &first);
  EXPECT_EQ(log.movements[1].scope, &second);
  EXPECT_EQ(log.movements[2].scope, &first);
  EXPECT_EQ(log.movements[2].steps[0].bytes, 2 * 6 * 4);
}

/// When a tensor already has the requested layout, redistribute still sets its gradient's layout.
TEST(Movements, GradientsComeBackWhereRedistributeSays) {
  on_mesh({{"x", 2}}, [](const DeviceMesh& mesh) {
    Tensor x = ones({4, 6}, {.sharding = Sharding(mesh, {})});
    x.set_requires_grad();
    Tensor y;
    {
      TrafficScope policy(Traffic::free_only);
      const Tensor stated = x.redistribute({Replicate()});
      const Tensor weight = ones({5, 6}, {.sharding = Sharding(mesh, {Shard(0)})});
      y = matmul(stated, weight.t());
    }
    backward({y}, {ones({4, 5}, {.sharding = Sharding(mesh, {Shard(1)})})});
    expect_placements(x.grad(), {Replicate()});
    EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(24, 5));
  });
}

TEST(Movements, OneLogAtATime) {
  OpLog log;
  EXPECT_EQ(error_of([] { OpLog second; }), "op log: the rank has one already, expected none");
}

}  // namespace
}  // namespace weft
