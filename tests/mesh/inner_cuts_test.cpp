// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "mesh/mesh_body.h"
#include "mesh/plan.h"
#include "tests/support/scratch.h"
#include "weft/communicator.h"
#include "weft/error.h"

namespace weft {

// Layouts that cut inner factors of dims: tables of plain numbers, worked out by hand.

/// One layout, the shape that has its factors as dims, and each rank's box in that shape.
struct FactorTable {
  const char* what;
  std::vector<MeshAxis> axes;
  Placements placements;
  Shape shape, factors;
  std::vector<Box> boxes;
};

static const std::vector<FactorTable>& factor_tables() {
  static const std::vector<FactorTable> tables = {
      {"3 ranks, uneven",
       {{"a", 3}},
       {Shard{0, {}, 2}},
       {14, 5},
       {2, 7, 5},
       {{{0, 0, 0}, {2, 3, 5}}, {{0, 3, 0}, {2, 3, 5}}, {{0, 6, 0}, {2, 1, 5}}}},
      {"the last rank empty",
       {{"a", 4}},
       {Shard{1, {}, 5}},
       {2, 15},
       {2, 5, 3},
       {{{0, 0, 0}, {2, 5, 1}},
        {{0, 0, 1}, {2, 5, 1}},
        {{0, 0, 2}, {2, 5, 1}},
        {{0, 0, 3}, {2, 5, 0}}}},
      {"both axes cut one factor",
       {{"a", 2}, {"b", 2}},
       {Shard{0, {}, 2}, Shard{0, {}, 2}},
       {10},
       {2, 5},
       {{{0, 0}, {2, 2}}, {{0, 2}, {2, 1}}, {{0, 3}, {2, 1}}, {{0, 4}, {2, 1}}}},
      {"both axes, the other order",
       {{"a", 2}, {"b", 2}},
       Placements{Shard{0, {}, 2}, Shard{0, {}, 2}}.cut_in_order(0, {"b", "a"}),
       {10},
       {2, 5},
       {{{0, 0}, {2, 2}}, {{0, 3}, {2, 1}}, {{0, 2}, {2, 1}}, {{0, 4}, {2, 1}}}},
      {"each axis cuts a factor",
       {{"a", 2}, {"b", 2}},
       {Shard(0), Shard{0, {}, 4}},
       {24},
       {4, 6},
       {{{0, 0}, {2, 3}}, {{0, 3}, {2, 3}}, {{2, 0}, {2, 3}}, {{2, 3}, {2, 3}}}},
      {"explicit sizes of the inner factor",
       {{"a", 3}},
       {Shard{0, {5, 0, 2}, 2}},
       {14},
       {2, 7},
       {{{0, 0}, {2, 5}}, {{0, 5}, {2, 0}}, {{0, 5}, {2, 2}}}},
      {"explicit sizes of the outer factor",
       {{"a", 2}, {"b", 3}},
       {Shard{0, {18, 12}}, Shard{0, {}, 5}},
       {30},
       {5, 6},
       {{{0, 0}, {3, 2}},
        {{0, 2}, {3, 2}},
        {{0, 4}, {3, 2}},
        {{3, 0}, {2, 2}},
        {{3, 2}, {2, 2}},
        {{3, 4}, {2, 2}}}},
      {"two dims",
       {{"a", 2}, {"b", 2}},
       {Shard{1, {}, 4}, Shard(0)},
       {3, 8},
       {3, 4, 2},
       {{{0, 0, 0}, {2, 4, 1}},
        {{2, 0, 0}, {1, 4, 1}},
        {{0, 0, 1}, {2, 4, 1}},
        {{2, 0, 1}, {1, 4, 1}}}},
      {"three factors",
       {{"a", 2}, {"b", 2}, {"c", 2}},
       {Shard{0, {}, 6}, Shard(0), Shard{0, {8, 4}, 2}},
       {24},
       {2, 3, 4},
       {{{0, 0, 0}, {1, 2, 2}},
        {{0, 2, 0}, {1, 1, 2}},
        {{1, 0, 0}, {1, 2, 2}},
        {{1, 2, 0}, {1, 1, 2}},
        {{0, 0, 2}, {1, 2, 2}},
        {{0, 2, 2}, {1, 1, 2}},
        {{1, 0, 2}, {1, 2, 2}},
        {{1, 2, 2}, {1, 1, 2}}}},
  };
  return tables;
}

TEST(InnerCuts, AreBoxesOfTheFactors) {
  for (const FactorTable& table : factor_tables()) {
    const auto ranks = static_cast<int>(table.boxes.size());
    for (int rank = 0; rank < ranks; ++rank) {
      DeviceMesh mesh(fake_world(rank, ranks), table.axes);
      const Ref<Layout> layout = layout_of(Sharding(mesh, table.placements), table.shape, f32);
      const Ref<Layout> factors = in_factors(layout);
      EXPECT_EQ(factors->shape, table.factors) << table.what;
      EXPECT_FALSE(factors->sharding.has_inner()) << table.what;
      const Box& box = table.boxes[static_cast<size_t>(rank)];
      EXPECT_EQ(factors->box, box)
          << table.what << ", rank " << rank << ": " << factors->box.offset << factors->box.shape;
      EXPECT_EQ(layout->box.shape.product(), box.shape.product()) << table.what;
      EXPECT_EQ(layout->box.shape.ndim(), table.shape.ndim()) << table.what;
    }
  }
}

/// In the dims of the tensor, parts are disjoint and cover the dims, in some order.
TEST(InnerCuts, PartsOfADimAreDisjoint) {
  for (const FactorTable& table : factor_tables()) {
    const auto ranks = static_cast<int>(table.boxes.size());
    DeviceMesh mesh(fake_world(0, ranks), table.axes);
    const Ref<Layout> layout = layout_of(Sharding(mesh, table.placements), table.shape, f32);
    int64_t elements = 0;
    for (int a = 0; a < ranks; ++a) {
      const Box one = layout->box_of(a);
      elements += one.shape.product();
      EXPECT_TRUE(contains({Dims::filled(table.shape.ndim(), 0), table.shape}, one)) << table.what;
      for (int b = 0; b < a; ++b) {
        EXPECT_EQ(overlap(one, layout->box_of(b)).shape.product(), 0) << table.what;
      }
    }
    EXPECT_EQ(elements, table.shape.product()) << table.what;
  }
}

TEST(InnerCuts, ArePrinted) {
  DeviceMesh mesh(fake_world(0, 4), {{"a", 2}, {"b", 2}});
  EXPECT_EQ(concat(Sharding(mesh, {Shard(0), Shard{0, {}, 4}})),
            "mesh(a=2, b=2)[S(0), S(0 in 4x*)]");
  const Placements inner{Shard{1, {}, 3}, Shard{1, {}, 3}};
  EXPECT_EQ(concat(Sharding(mesh, inner.cut_in_order(1, {"b", "a"}))),
            "mesh(a=2, b=2)[S(1 in 3x*), S(1 in 3x*); dim 1 by b, a]");
  EXPECT_EQ(concat(Placement(Shard{0, {5, 2}, 2})), "S(0 in 2x*: 5+2)");
  EXPECT_EQ(Shard(0), (Shard{0, {}, 1}));
  EXPECT_NE(Placement(Shard(0)), Placement(Shard{0, {}, 2}));
}

/// Sizes that chunks have are dropped, also those of an inner factor.
TEST(InnerCuts, AreNormalised) {
  DeviceMesh mesh(fake_world(0, 3), {{"a", 3}});
  EXPECT_EQ(Sharding(mesh, {Shard{0, {3, 3, 1}, 2}}), Sharding(mesh, {Shard{0, {}, 2}}));
  EXPECT_NE(Sharding(mesh, {Shard{0, {3, 1, 3}, 2}}), Sharding(mesh, {Shard{0, {}, 2}}));
}

TEST(InnerCuts, OfShapesWithoutTheFactorsAreRefused) {
  DeviceMesh mesh(fake_world(0, 4), {{"a", 2}, {"b", 2}});
  const auto error = [&](const Placements& placements, const Shape& shape) -> std::string {
    try {
      layout_of(Sharding(mesh, placements), shape, f32);
    } catch (const std::invalid_argument& refused) {
      return refused.what();
    }
    return "";
  };
  EXPECT_EQ(error({Shard{0, {}, 4}}, {30}),
            "layout: the outer factors of S(0 in 4x*) are 4, expected a divisor of 30, the size of "
            "dim 0 of [30]");
  EXPECT_EQ(error({Shard{0, {2, 3}, 4}}, {24}),
            "layout: the explicit sizes of dim 0 in mesh(a=2, b=2)[S(0 in 4x*: 2+3), R] add up to "
            "5, expected 6, as in the shape [24]");
  EXPECT_EQ(error({Shard(0), Shard{0, {}, 5}}, {30}),
            "layout: the cuts of [30] are [S(0), S(0 in 5x*)], expected parts of whole factors");
  EXPECT_EQ(error({Shard{0, {}, 4}, Shard{0, {}, 6}}, {24}),
            "layout: the cuts of [24] are [S(0 in 4x*), S(0 in 6x*)], expected parts of whole "
            "factors");
  try {
    Placement placement(Shard{0, {}, 0});
    ADD_FAILURE() << placement;
  } catch (const std::invalid_argument& refused) {
    EXPECT_STREQ(refused.what(), "placement: outer of Shard(0) must be at least 1, got 0");
  }
}

/// The steps of a plan are those of a reshaped tensor whose dims are the factors.
TEST(InnerCuts, ArePlannedInTheFactors) {
  DeviceMesh mesh(fake_world(0, 2), {{"a", 2}});
  const auto layout = [&](const Placement& cut) {
    return layout_of(Sharding(mesh, {cut}), {24, 3}, f32);
  };
  const PlanOptions collectives{.collectives = true};
  const auto plan = plan_between(layout(Shard{0, {}, 4}), layout(Replicate()), collectives);
  ASSERT_EQ(plan->steps.size(), 1u);
  EXPECT_EQ(plan->steps[0].kind, PlanStep::Kind::all_gather);
  EXPECT_EQ(plan->steps[0].from->shape, (Shape{4, 6, 3}));
  EXPECT_EQ(plan->cost.bytes, 36 * 4);
  EXPECT_NE(to_string(*plan).find(": S(1) -> R of [4, 6, 3], 144 B"), std::string::npos)
      << to_string(*plan);
  EXPECT_EQ(plan_between(layout(Shard{0, {}, 4}), layout(Shard(0)), collectives)->cost.bytes,
            18 * 4);
  EXPECT_TRUE(plan_between(layout(Replicate()), layout(Shard{0, {}, 4}))->is_free());
  // Rows 0 to 11 and columns 0 to 7 of [3, 8] have no factors in common: by way of the whole.
  const auto apart = plan_between(layout(Shard{0, {}, 3}), layout(Shard{0, {}, 4}), collectives);
  EXPECT_EQ(apart->cost.bytes, 36 * 4);
  EXPECT_FALSE(apart->is_free());
}

}  // namespace weft
