// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/derivatives.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

TEST(Tape, AVeryLongOneIsForgottenWithoutRecursion) {
  Tensor x = numbers({1});
  x.set_requires_grad();
  Tensor y = x;
  for (int i = 0; i < 200'000; ++i) y = neg(y);
  y = Tensor();
  EXPECT_FALSE(x.grad());
  // The same through the values that each node saves.
  y = x;
  for (int i = 0; i < 200'000; ++i) y = exp(y);
  y = Tensor();
  EXPECT_FALSE(x.grad());
}

TEST(Tape, OfAMillionNodesRunsAndIsFreed) {
  Tensor x = full({}, 1.0, {.dtype = f64});
  x.set_requires_grad();
  Tensor y = x;
  for (int i = 0; i < 1'000'000; ++i) y = neg(y);
  y.backward();
  EXPECT_EQ(x.grad().item(), 1);
  y = Tensor();
  y = x;
  for (int i = 0; i < 100'000; ++i) y = mul(y, 1.0);
  const Tensor first = grad({y}, {x}, {.create_graph = true})[0];
  EXPECT_EQ(first.item(), 1);
}

/// The graph of the gradient has several nodes for each of the 200,000, and refers to them.
TEST(Tape, OfARecordedGradientRunsAndIsFreed) {
  Tensor x = full({}, 1e-3, {.dtype = f64});
  x.set_requires_grad();
  Tensor y = x;
  for (int i = 0; i < 200'000; ++i) y = sin(y);
  Tensor first = grad({y}, {x}, {.create_graph = true})[0];
  y = Tensor();
  // To second order y is x (1 + n x^2 / 3)^(-1/2), whose derivatives these are.
  EXPECT_NEAR(first.item(), std::pow(1 + 0.2 / 3, -1.5), 1e-4);
  const double second = grad({first}, {x}, {.retain_graph = true})[0].item();
  EXPECT_NEAR(second, -200 * std::pow(1 + 0.2 / 3, -2.5), 0.1);
  first = Tensor();
}

/// Returns the error of backward through 2 x, with x sharded by rows and its gradient by columns.
static std::string error_of_gradient_that_moves(const DeviceMesh& mesh, Traffic recorded) {
  Tensor x = numbers({8, 4}, 1, Sharding(mesh, {Shard(0)}));
  x.set_requires_grad();
  Tensor y;
  {
    TrafficScope scope(recorded);
    y = mul(x, 2.0);
  }
  Tensor by_columns = numbers({8, 4}, 2, Sharding(mesh, {Shard(1)}));
  return error_of([&] { backward({y}, {by_columns}); });
}

TEST(Tape, ThePolicyOfAResultHoldsForItsGradientsLayout) {
  on_mesh({{"a", 4}}, [](const DeviceMesh& mesh) {
    EXPECT_EQ(error_of_gradient_that_moves(mesh, Traffic::allow), "nothing");
    EXPECT_EQ(error_of_gradient_that_moves(mesh, Traffic::free_only),
              "mul_number: operands need a redistribution between ranks, expected layouts without "
              "one, as the traffic policy demands; redistribute them explicitly");
  });
}

TEST(Tape, GradientsThatMoveAreCountedByTheOpWhoseResultTheyAre) {
  on_mesh({{"a", 4}}, [](const DeviceMesh& mesh) {
    EXPECT_EQ(error_of_gradient_that_moves(mesh, Traffic::allow), "nothing");
    EXPECT_EQ(implicit_traffic(), "mul_number: 1 times, 24 bytes\n");
  });
}

TEST(Tape, SpecsThatNameWhatIsNotThereAreRefused) {
  auto refused = [](OpSpec spec) {
    spec.rule_text = "a, a -> a";
    spec.forward = [](const Call&) {};
    return error_of([&] { Op op(spec); });
  };
  EXPECT_EQ(refused({.name = "wrong", .writes = {2}}), "wrong: writes is 2, expected one below 2");
  EXPECT_EQ(refused({.name = "wrong", .saves_in = std::vector<int>{0, -1}}),
            "wrong: saves_in is -1, expected one below 2");
  EXPECT_EQ(refused({.name = "wrong", .saves_out = {1}}),
            "wrong: saves_out is 1, expected one below 1");
  EXPECT_EQ(refused({.name = "wrong", .accumulates = {1}}),
            "wrong: accumulates is 1, expected one below 1");
  EXPECT_EQ(refused({.name = "wrong", .linear = {{0}, {5}}}),
            "wrong: linear is 5, expected one below 2");
  EXPECT_EQ(refused({.name = "wrong", .by_index = ByIndex{.into = 2}}),
            "wrong: by_index is 2, expected one below 2");
  EXPECT_EQ(
      refused(
          {.name = "wrong", .staged_over = {"a"}, .stages = {{.result = "a b a", .run = nullptr}}}),
      "wrong: result of a stage is \"a b a\", expected an array: an array names a factor twice");
}

TEST(Tape, BuiltInOpsAreCheckedBeforeTheirLinearOperandsAreRead) {
  for (const int operand : {-1, 2, 64}) {
    const auto wrong = [&] {
      register_op({.name = "wrong",
                   .rule = "a, a -> a",
                   .linear = {{0, operand}},
                   .forward = [](const Call&) {}});
    };
    EXPECT_EQ(error_of(wrong), concat("wrong: linear is ", operand, ", expected one below 2"));
  }
}

TEST(Tape, DistributeClaimsEqualityWithoutAMessage) {
  const auto error = [](const Shape& shape, bool equal, int calls_before) {
    return error_of<CommError>([&] {
      run_ranks(3,
                [&](Communicator world) {
                  const DeviceMesh mesh(world, {{"a", 3}});
                  for (int i = 0; i < calls_before; ++i) {
                    distribute(numbers(shape, 1), mesh, {Shard(0)});
                  }
                  const int64_t before = world.traffic().collectives;
                  const Tensor whole = numbers(shape, equal || world.rank() < 2 ? 1 : 2);
                  const Tensor part = distribute(whole, mesh, {Shard(0)});
                  EXPECT_EQ(world.traffic().collectives, before);
                  sum(part).full_tensor();
                },
                {.deadline = std::chrono::seconds(10)});
    });
  };
  EXPECT_EQ(error({4, 2}, true, 0), "nothing");
  const std::string small = error({4, 2}, false, 0);
  EXPECT_TRUE(
      small.find("ranks differ: rank 0 called distribute(f32, [4, 2]) of values with hash") !=
      small.npos)
      << small;
  EXPECT_TRUE(small.find("but rank 2 called distribute(f32, [4, 2])") != small.npos) << small;
  EXPECT_TRUE(small.find("from_local(tensor, mesh, {Shard(0)})") != small.npos) << small;
  // Sampled, because it is larger than 1 MiB.
  EXPECT_NE(error({700, 1000}, false, 0), "nothing");
  EXPECT_EQ(error({700, 1000}, true, 0), "nothing");
  // The first 16 calls for a layout are compared, and each 16th later one.
  EXPECT_NE(error({5}, false, 16), "nothing");
  EXPECT_EQ(error({5}, false, 17), "nothing");
  EXPECT_NE(error({5}, false, 32), "nothing");
}

TEST(Tape, WhatIsDistributedMustBeEqualWhenThatIsChecked) {
  auto error = [](std::optional<bool> checked, bool equal) {
    std::string said;
    run_ranks(3,
              [&](Communicator world) {
                DeviceMesh mesh(world, {{"a", 3}});
                Tensor whole = numbers({4, 2}, equal || world.rank() < 2 ? 1 : 2);
                std::string mine = error_of([&] { distribute(whole, mesh, {Shard(0)}); });
                if (world.rank() == 0) said = mine;
              },
              {.deadline = std::chrono::seconds(10), .checks_equality = checked});
    return said;
  };
  EXPECT_EQ(error(false, false), "nothing");
  EXPECT_EQ(error(true, true), "nothing");
  EXPECT_EQ(error(true, false),
            "distribute: the tensor [4, 2] of rank 2 differs from that of rank 0, expected equal "
            "values; scatter or from_local take others");
}

TEST(Tape, NoTensorHasNoProperties) {
  const Tensor none;
  EXPECT_EQ(error_of([&] { none.shape(); }), "shape: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { none.size(0); }), "shape: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { none.local(); }), "local: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { none.grad(); }), "grad: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { none.detach(); }), "detach: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { none.requires_grad(); }),
            "requires_grad: no tensor is given, expected one");
  EXPECT_EQ(error_of([&] { none.block(); }), "block: no tensor is given, expected one");
}

TEST(Tape, BackwardsOfTwoThreadsAddToOneLeaf) {
  constexpr int kTimes = 200;
  Tensor leaf = ones({3});
  leaf.set_requires_grad(true);
  {
    const auto differentiate = [&] {
      for (int i = 0; i < kTimes; ++i) {
        sum(mul(leaf, 2)).backward();
        EXPECT_GE(leaf.grad().to_vector<float>()[0], 2 * (i + 1));
      }
    };
    const std::jthread other(differentiate);
    differentiate();
  }
  EXPECT_EQ(leaf.grad().to_vector<float>(), std::vector<float>(3, 4 * kTimes));
}

}  // namespace weft
