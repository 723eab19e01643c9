// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/ops/contract.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/storage.h"

namespace weft {

// The engine's guarantees for every op: Partials, routes, policies, the tape.

static Tensor sum_terms(const DeviceMesh& mesh, const Shape& shape, int64_t salt = 1) {
  return terms_of(small_numbers(shape, salt), shape, Sharding(mesh, {kSum}));
}

static std::vector<double> mapped(std::vector<double> values, double (*function)(double)) {
  for (double& value : values) value = function(value);
  return values;
}

TEST(ContractEngine, ANumberAddedToASumCountsOnce) {
  for (const auto& axes : {kFour, kThree}) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      TrafficScope scope(Traffic::forbid);
      Tensor y = (sum_terms(mesh, {5, 3}) + 1.0) * 2.0 - 3.0;
      expect_placements(y, {kSum});
      TrafficScope open(Traffic::allow);
      expect_values(whole_values(y),
                    mapped(small_numbers({5, 3}, 1), [](double x) { return (x + 1) * 2 - 3; }));
    });
  }
}

TEST(ContractEngine, ANumberAddedToASumOnTwoAxesCountsOnce) {
  on_mesh(kTwoByTwo, [](const DeviceMesh& mesh) {
    Sharding both(mesh, {kSum, kSum}), second(mesh, {Shard(0), kSum});
    for (const Sharding& sharding : {both, second}) {
      Tensor y = terms_of(small_numbers({5, 3}, 1), {5, 3}, sharding) + 1.0;
      EXPECT_EQ(y.sharding(), sharding);
      expect_values(whole_values(y),
                    mapped(small_numbers({5, 3}, 1), [](double x) { return x + 1; }));
    }
  });
}

TEST(ContractEngine, AWholeTensorAddedToASumCountsOnceAndMovesNothing) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    TrafficScope scope(Traffic::free_only);
    Tensor y = sum_terms(mesh, {5, 3}) + numbers({3}, 2, Sharding(mesh, {}));
    expect_placements(y, {kSum});
    TrafficScope open(Traffic::allow);
    std::vector<double> expected = small_numbers({5, 3}, 1), row = small_numbers({3}, 2);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += row[i % 3];
    expect_values(whole_values(y), expected);
  });
}

TEST(ContractEngine, AFunctionThatIsNotLinearReducesFirst) {
  for (const auto& axes : {kFour, kThree}) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      for (const Placement& placement : {kSum, kAvg}) {
        Tensor x = placement == kSum ? sum_terms(mesh, {5, 3})
                                     : from_local(numbers({5, 3}, 1), mesh, {kAvg}, {5, 3});
        Tensor y = exp(x);
        EXPECT_FALSE(y.sharding().has_partial());
        expect_values(whole_values(y),
                      mapped(small_numbers({5, 3}, 1), [](double a) { return std::exp(a); }), 1e-6);
      }
    });
  }
}

TEST(ContractEngine, AProductOfTwoSumsReducesOne) {
  on_mesh(kThree, [](const DeviceMesh& mesh) {
    Tensor y = mul(sum_terms(mesh, {5, 3}, 1), sum_terms(mesh, {5, 3}, 2));
    std::vector<double> a = small_numbers({5, 3}, 1), b = small_numbers({5, 3}, 2);
    for (size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
    expect_values(whole_values(y), a);
  });
}

TEST(ContractEngine, ARouteServesEveryNumber) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    Tensor x = numbers({5, 3}, 1, Sharding(mesh, {Shard(0)}));
    const int64_t misses = engine_statistics().route_misses;
    for (double factor : {2.0, 3.0, -0.5}) {
      std::vector<double> expected = small_numbers({5, 3}, 1);
      for (double& value : expected) value *= factor;
      expect_values(whole_values(x * factor), expected);
    }
    EXPECT_EQ(engine_statistics().route_misses, misses + 1);
  });
}

/// a [6, 8] times b [8, 10], whose shared dim is sharded by both axes, in these orders.
static void expect_product(const DeviceMesh& mesh, const Placements& left,
                           const Placements& right) {
  Tensor a = numbers({6, 8}, 1, Sharding(mesh, left)),
         b = numbers({8, 10}, 2, Sharding(mesh, right));
  std::vector<double> as = small_numbers({6, 8}, 1), bs = small_numbers({8, 10}, 2), expected;
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = 0; j < 10; ++j) {
      double sum = 0;
      for (size_t k = 0; k < 8; ++k) sum += as[i * 8 + k] * bs[k * 10 + j];
      expected.push_back(sum);
    }
  }
  expect_values(whole_values(matmul(a, b)), expected);
}

TEST(ContractEngine, OperandsCutInDifferentAxisOrderAreBroughtToOne) {
  on_mesh(kTwoByTwo, [](const DeviceMesh& mesh) {
    const Placements columns = {Shard(1), Shard(1)}, rows = {Shard(0), Shard(0)};
    const Placements columns_b = columns.cut_in_order(1, {"b", "a"});
    const Placements rows_b = rows.cut_in_order(0, {"b", "a"});
    expect_product(mesh, columns, rows);
    expect_product(mesh, columns_b, rows);
    expect_product(mesh, columns, rows_b);
    expect_product(mesh, columns_b, rows_b);
    TrafficScope scope(Traffic::forbid);
    Tensor a = numbers({6, 8}, 1, Sharding(mesh, columns_b));
    expect_placements(matmul(a, numbers({8, 10}, 2, Sharding(mesh, rows_b))), {kSum, kSum});
    EXPECT_NE(error_of([&] { matmul(a, numbers({8, 10}, 2, Sharding(mesh, rows))); }), "nothing");
  });
}

TEST(ContractEngine, PoliciesSayWhichTrafficAnOpMayCause) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    Tensor rows = numbers({8, 4}, 1, Sharding(mesh, {Shard(0)}));
    Tensor columns = numbers({8, 4}, 1, Sharding(mesh, {Shard(1)}));
    Tensor whole = numbers({8, 4}, 1, Sharding(mesh, {}));
    auto add_under = [&](Traffic traffic, const Tensor& a, const Tensor& b) {
      return error_of([&] {
        TrafficScope scope(traffic);
        add(a, b);
      });
    };
    EXPECT_EQ(add_under(Traffic::allow, rows, columns), "nothing");
    EXPECT_EQ(add_under(Traffic::free_only, rows, whole), "nothing");
    EXPECT_EQ(add_under(Traffic::forbid, rows, rows), "nothing");
    const std::string across =
        "add: operands need a redistribution between ranks, expected layouts without one, as the "
        "traffic policy demands; redistribute them explicitly";
    EXPECT_EQ(add_under(Traffic::free_only, rows, columns), across);
    EXPECT_EQ(add_under(Traffic::forbid, rows, columns), across);
    EXPECT_EQ(add_under(Traffic::forbid, rows, whole),
              "add: operands need a redistribution within ranks, expected layouts without one, as "
              "the traffic policy demands; redistribute them explicitly");
  });
}

TEST(ContractEngine, ThePolicyOfARecordedOpHoldsForItsGradient) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    // Forward is free: the vocabulary is whole. Its gradient would reduce over the sharded rows.
    Tensor x = numbers({8, 4}, 1, Sharding(mesh, {Shard(0)}));
    x.set_requires_grad();
    auto scaled_by_norm = [&](Traffic traffic) {
      Op op({.name = "reducing_gradient",
             .rule = "a b -> a b",
             .forward = [](const Call&) {},
             .backward = [](const Grad& g) { g.give(0, mul(g.grad(), exp(sum(g.grad())))); },
             .saves_in = std::vector<int>{}});
      TrafficScope scope(traffic);
      return op({x});
    };
    Tensor forbidden = scaled_by_norm(Traffic::free_only), allowed = scaled_by_norm(Traffic::allow);
    EXPECT_NE(error_of([&] {
                backward({forbidden}, {zeros_like(x)});
              }).find("as the traffic policy demands"),
              std::string::npos);
    TrafficScope scope(Traffic::free_only);
    EXPECT_EQ(error_of([&] { backward({allowed}, {zeros_like(x)}); }), "nothing");
  });
}

TEST(ContractEngine, ImplicitTrafficIsCountedByOp) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    const EngineStatistics before = engine_statistics();
    Tensor rows = numbers({8, 4}, 1, Sharding(mesh, {Shard(0)}));
    Tensor columns = numbers({8, 4}, 1, Sharding(mesh, {Shard(1)}));
    int64_t bytes = bytes_received(mesh, [&] { add(rows, columns); });
    EXPECT_EQ(bytes, 6 * 4) << "of 8 elements, 2 are here";
    EXPECT_EQ(engine_statistics().implicit_bytes - before.implicit_bytes, bytes);
    EXPECT_EQ(engine_statistics().implicit_redistributions, before.implicit_redistributions + 1);
    EXPECT_EQ(implicit_traffic(), "add: 1 times, 24 bytes\n");
  });
}

TEST(ContractEngine, ASavedTensorThatChangedIsRefused) {
  Tensor x = numbers({5}, 1), y = numbers({5}, 2);
  x.set_requires_grad();
  Tensor product = mul(x, y);
  fill_(y, 3);
  EXPECT_EQ(error_of([&] { backward({product}, {ones({5})}); }),
            "mul: operand 1 [5] was changed in place after forward, expected its values for the "
            "gradient");
  Tensor root = exp(x);
  fill_(root.detach(), 3);
  EXPECT_NE(error_of([&] {
              backward({root}, {ones({5})});
            }).find("was changed in place after forward, expected its values"),
            std::string::npos);
}

TEST(ContractEngine, WhatTheGradientDoesNotReadMayChange) {
  Tensor x = numbers({5}, 1), y = numbers({5}, 2);
  x.set_requires_grad();
  Tensor total = add(x, y);
  fill_(y, 3);
  backward({total}, {ones({5})});
  expect_values(x.grad().to_vector<double>(), std::vector<double>(5, 1));
}

TEST(ContractEngine, BackwardRunsOnce) {
  Tensor x = numbers({5}, 1);
  x.set_requires_grad();
  Tensor y = mul(x, x);
  backward({y}, {ones({5})});
  EXPECT_EQ(error_of([&] { backward({y}, {ones({5})}); }),
            "mul: backward ran before and freed the saved tensors, expected one backward; "
            "retain_graph keeps them");
}

TEST(ContractEngine, GradientsAddUpOverBackwards) {
  on_mesh(kThree, [](const DeviceMesh& mesh) {
    Tensor x = numbers({5}, 1, Sharding(mesh, {Shard(0)}));
    x.set_requires_grad();
    for (int i = 0; i < 3; ++i) backward({x * 2.0}, {ones_like(x)});
    expect_values(whole_values(x.grad()), std::vector<double>(5, 6));
    x.set_grad({});
    EXPECT_FALSE(x.grad());
  });
}

TEST(ContractEngine, ALeafsGradientIsItsOwn) {
  Tensor x = numbers({5}, 1), gradient = ones({5});
  x.set_requires_grad();
  backward({add(x, x)}, {gradient});
  backward({add(x, 1.0)}, {gradient});
  expect_values(x.grad().to_vector<double>(), std::vector<double>(5, 3));
  expect_values(gradient.to_vector<double>(), std::vector<double>(5, 1));
}

TEST(ContractEngine, ALeafChangedInPlaceWantsNoGrad) {
  Tensor x = numbers({5}, 1);
  x.set_requires_grad();
  EXPECT_NE(error_of([&] { scale_(x, full({}, 2)); }).find("use NoGrad"), std::string::npos);
  EXPECT_NE(error_of([&] { fill_(mul(x, x), 2); }).find("requires a gradient"), std::string::npos);
  EXPECT_NE(error_of([&] { copy_(zeros({5}), x); }).find("that is copied requires a gradient"),
            std::string::npos);
  const NoGrad no_grad;
  scale_(x, full({}, 2));
  expect_values(x.to_vector<double>(),
                mapped(small_numbers({5}, 1), [](double value) { return 2 * value; }));
}

TEST(ContractEngine, RoutesAreFoundAgain) {
  on_mesh(kTwoByTwo, [](const DeviceMesh& mesh) {
    Tensor x = numbers({6, 8}, 1, Sharding(mesh, {Shard(0), kWhole}));
    Tensor w = numbers({8, 4}, 2, Sharding(mesh, {kWhole, Shard(1)}));
    matmul(x, w);
    const EngineStatistics before = engine_statistics();
    for (int i = 0; i < 100; ++i) matmul(x, w);
    EXPECT_EQ(engine_statistics().route_hits, before.route_hits + 100);
    EXPECT_EQ(engine_statistics().route_misses, before.route_misses);
    EXPECT_EQ(engine_statistics().calls, before.calls + 100);
  });
}

TEST(ContractEngine, TenThousandShapesLeaveNothingBehind) {
  on_mesh({{"a", 2}}, [](const DeviceMesh& mesh) {
    Sharding rows(mesh, {Shard(0)});
    auto use = [&](int64_t n) {
      Tensor x = zeros({n, 2}, {.sharding = rows});
      x.set_requires_grad();
      backward({x * 2.0}, {x.detach()});
      zeros({n}) + 1.0;
    };
    int64_t layouts = 0, plans = 0, routes = 0, bytes = 0;
    for (int64_t n = 1; n <= 10'000; ++n) {
      use(n % 100 == 0 ? 1 : n);
      if (n != 5'000) continue;
      layouts = mesh.body()->layouts.statistics().entries;
      plans = mesh.body()->plans.statistics().entries;
      bytes = memory_statistics().total.current;
    }
    EXPECT_LE(mesh.body()->layouts.statistics().entries, 2 * layouts);
    EXPECT_LE(mesh.body()->plans.statistics().entries, 2 * plans);
    EXPECT_GT(engine_statistics().route_evictions, 10'000);
    routes = engine_statistics().route_misses - engine_statistics().route_evictions;
    EXPECT_LT(routes, 10'000) << "routes that are kept";
    EXPECT_LE(memory_statistics().total.current, bytes + 4096);
  });
}

TEST(ContractEngine, OpsOfTwoMeshesDoNotMix) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    DeviceMesh other(mesh.communicator(), {{"c", 2}, {"d", 2}});
    Tensor a = numbers({4}, 1, Sharding(mesh, {Shard(0)}));
    Tensor b = numbers({4}, 1, Sharding(other, {Shard(0)}));
    EXPECT_EQ(error_of([&] { add(a, b); }),
              "add: operand 1 is laid out over mesh(c=2, d=2), expected mesh(a=4), as operand 0");
    EXPECT_EQ(
        error_of([&] { add(a, numbers({4})); }),
        "add: operand 1 [4] has no mesh, expected mesh(a=4), that of operand 0 "
        "[4]; from_local(operand, mesh, {Shard(0)}) makes it of rows that differ between ranks, "
        "distribute(operand, mesh, {}) of values that are equal on all");
  });
}

TEST(ContractEngine, ViewsOfTheMeshAreOneMesh) {
  on_mesh(kTwoByTwo, [](const DeviceMesh& mesh) {
    Tensor a = distribute(numbers({5, 4}, 1), mesh["a"], {Shard(0)});
    Tensor b = distribute(numbers({5, 4}, 2), mesh, {{"b", Shard(1)}});
    expect_placements(a, {Shard(0), kWhole});
    Tensor c = add(a, b);
    std::vector<double> expected = small_numbers({5, 4}, 1), other = small_numbers({5, 4}, 2);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += other[i];
    expect_values(whole_values(c), expected);
  });
}

}  // namespace weft
