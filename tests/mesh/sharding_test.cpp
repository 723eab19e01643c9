// SPDX-License-Identifier: Apache-2.0
#include "weft/sharding.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/scratch.h"
#include "weft/communicator.h"

namespace weft {

static std::string text_of(const Sharding& sharding) {
  std::ostringstream text;
  text << sharding;
  return text.str();
}

static std::string sharding_mistake(const DeviceMesh& mesh, const Placements& placements) {
  return error_of([&] { Sharding(mesh, placements); });
}

/// Ways in which users write placements: each call must compile and be interpreted correctly.
static Sharding laid_out(const DeviceMesh& mesh, const Placements& placements) {
  return Sharding(mesh, placements);
}

TEST(Sharding, AllWaysToWritePlacements) {
  DeviceMesh mesh(fake_world(0, 8), {{"dp", 2}, {"tp", 4}});
  const std::string dp = "mesh(dp=2, tp=4)[S(0), R]", tp = "mesh(dp=2, tp=4)[R, S(0)]";
  EXPECT_EQ(text_of(laid_out(mesh, {})), "mesh(dp=2, tp=4)[R, R]");
  EXPECT_EQ(text_of(laid_out(mesh, {Shard(0)})), dp);
  EXPECT_EQ(text_of(laid_out(mesh, {Shard(0), Replicate()})), dp);
  EXPECT_EQ(text_of(laid_out(mesh, {Replicate(), Shard{0}})), tp);
  EXPECT_EQ(text_of(laid_out(mesh, {{"tp", Shard(0)}})), tp);
  EXPECT_EQ(text_of(laid_out(mesh, {{"tp", Shard(1)}, {"dp", Partial()}})),
            "mesh(dp=2, tp=4)[P(sum), S(1)]");
  EXPECT_EQ(text_of(laid_out(mesh, {Partial(ReduceOp::max), Partial{ReduceOp::max}})),
            "mesh(dp=2, tp=4)[P(max), P(max)]");
  const std::vector<Placement> values{Replicate(), Partial(ReduceOp::avg)};
  EXPECT_EQ(text_of(laid_out(mesh, Placements(std::span(values)))), "mesh(dp=2, tp=4)[R, P(avg)]");
  EXPECT_EQ(text_of(Sharding()), "no sharding");
}

TEST(Sharding, AllWaysToWriteViews) {
  DeviceMesh mesh(fake_world(0, 8), {{"dp", 2}, {"tp", 4}});
  const std::string name = "dp";
  EXPECT_EQ(text_of(laid_out(mesh["tp"], {Shard(0)})), "mesh(dp=2, tp=4)[R, S(0)]");
  EXPECT_EQ(text_of(laid_out(mesh[name], {Shard(1)})), "mesh(dp=2, tp=4)[S(1), R]");
  EXPECT_EQ(text_of(laid_out(mesh[{"tp", "dp"}], {Shard(0), Shard(1)})),
            "mesh(dp=2, tp=4)[S(1), S(0)]");
  EXPECT_EQ(text_of(laid_out(mesh[{"tp"}], {{"tp", Shard(0)}})), "mesh(dp=2, tp=4)[R, S(0)]");
  EXPECT_EQ(laid_out(mesh["tp"], {Shard(0)}), laid_out(mesh, {{"tp", Shard(0)}}));
  EXPECT_EQ(laid_out(mesh["tp"], {Shard(0)}).mesh(), mesh);
}

TEST(Sharding, OrderOfTheCuts) {
  DeviceMesh mesh(fake_world(0, 8), {{"dp", 2}, {"tp", 4}});
  Placements both{Shard(0), Shard(0)};
  Sharding plain(mesh, both), turned(mesh, both.cut_in_order(0, {"tp", "dp"}));
  EXPECT_EQ(text_of(plain), "mesh(dp=2, tp=4)[S(0), S(0)]");
  EXPECT_EQ(text_of(turned), "mesh(dp=2, tp=4)[S(0), S(0); dim 0 by tp, dp]");
  EXPECT_FALSE(plain == turned);
  EXPECT_EQ(plain, Sharding(mesh, both.cut_in_order(0, {"dp", "tp"})));
  EXPECT_EQ(plain, Sharding(mesh, {{"tp", Shard(0)}, {"dp", Shard(0)}}));
  EXPECT_EQ(turned.axes_cutting(0), (Axes{1, 0}));
  EXPECT_EQ(Sharding::of(mesh, turned.pattern()), turned);
  Pattern moved = turned.pattern();
  moved.set(1, Replicate());
  EXPECT_EQ(text_of(Sharding::of(mesh, moved)), "mesh(dp=2, tp=4)[S(0), R]");
  moved.set(1, Shard{0});
  EXPECT_EQ(Sharding::of(mesh, moved), plain);
  EXPECT_TRUE(turned.axes_cutting(1).empty());
  EXPECT_EQ(Sharding(mesh, Placements{Shard(1)}.cut_in_order(1, {"dp"})),
            Sharding(mesh, {Shard(1)}));
}

TEST(Sharding, Questions) {
  DeviceMesh mesh(fake_world(0, 4), {{"dp", 2}, {"tp", 2}});
  EXPECT_TRUE(Sharding(mesh, {}).is_replicated());
  EXPECT_FALSE(Sharding(mesh, {Shard(0)}).is_replicated());
  EXPECT_TRUE(Sharding(mesh, {{"tp", Partial()}}).has_partial());
  EXPECT_FALSE(Sharding(mesh, {Shard(0)}).has_partial());
  EXPECT_EQ(Sharding(mesh, {Shard(0)}).axes(), 2);
  EXPECT_TRUE(Sharding(mesh, {Shard(3)})[0].is_shard(3));
  EXPECT_EQ(Sharding(mesh, {}).placements().size(), 2u);
  EXPECT_TRUE(Sharding().is_replicated());
}

TEST(Sharding, Mistakes) {
  DeviceMesh mesh(fake_world(0, 4), {{"dp", 2}, {"tp", 2}});
  EXPECT_EQ(
      sharding_mistake(mesh, {Shard(0), Shard(1), Replicate()}),
      "sharding: number of placements is 3, expected at most 2, the axes of mesh(dp=2, tp=2)");
  EXPECT_EQ(sharding_mistake(mesh["dp"], {Shard(0), Shard(1)}),
            "sharding: number of placements is 2, expected at most 1, the axes of mesh(dp=2)");
  EXPECT_EQ(sharding_mistake(mesh, {{"pp", Shard(0)}}),
            "mesh(dp=2, tp=2): axis \"pp\" does not exist");
  EXPECT_EQ(sharding_mistake(mesh["dp"], {{"tp", Shard(0)}}),
            "mesh(dp=2): axis \"tp\" does not exist");
  EXPECT_EQ(sharding_mistake(mesh, {{"tp", Shard(0)}, {"tp", Shard(1)}}),
            "sharding: axis \"tp\" of mesh(dp=2, tp=2) is named twice, expected once");
  EXPECT_EQ(sharding_mistake(mesh, {Partial(), Partial(ReduceOp::max)}),
            "sharding: kinds of Partial are P(sum) on axis \"dp\" and P(max) on axis \"tp\", "
            "expected one kind");
  const std::string order = ", expected each axis that cuts it once, ";
  EXPECT_EQ(sharding_mistake(mesh, Placements{Shard(0)}.cut_in_order(0, {"dp", "tp"})),
            "sharding: order of dim 0 is [dp, tp]" + order + "[dp]");
  EXPECT_EQ(sharding_mistake(mesh, Placements{Shard(0), Shard(0)}.cut_in_order(0, {"tp"})),
            "sharding: order of dim 0 is [tp]" + order + "[dp, tp]");
  EXPECT_EQ(sharding_mistake(mesh, Placements{Shard(0), Shard(0)}.cut_in_order(0, {"tp", "tp"})),
            "sharding: order of dim 0 is [tp, tp]" + order + "[dp, tp]");
  EXPECT_EQ(sharding_mistake(mesh, Placements{Shard(0)}.cut_in_order(1, {"dp"})),
            "sharding: order of dim 1 is [dp]" + order + "[]");
  EXPECT_EQ(sharding_mistake(DeviceMesh(), {}),
            "sharding: this rank is not in the mesh, expected one of its ranks");
}

TEST(Sharding, DimsOfNoTensorAreRefusedAtOnce) {
  for (int dim : {-33, 32, 300}) {
    EXPECT_EQ(error_of([&] { Placement placement = Shard(dim); }),
              "placement: dim of Shard is " + std::to_string(dim) + ", expected -32 to 31");
  }
}

TEST(Sharding, DimsBelowZeroCountFromTheEndOfATensor) {
  DeviceMesh mesh(fake_world(0, 4), {{"dp", 2}, {"tp", 2}});
  const Placements last{Shard(-1), Shard(-3)};
  EXPECT_EQ(Sharding(mesh, last, 3), Sharding(mesh, {Shard(2), Shard(0)}));
  EXPECT_EQ(Sharding(mesh, {{"tp", Shard(-2)}}, 2), Sharding(mesh, {{"tp", Shard(0)}}));
  const Placements both{Shard(-1), Shard(-1)};
  EXPECT_EQ(Sharding(mesh, both.cut_in_order(-1, {"tp", "dp"}), 2),
            Sharding(mesh, Placements{Shard(1), Shard(1)}.cut_in_order(1, {"tp", "dp"})));
  EXPECT_EQ(sharding_mistake(mesh, last),
            "sharding: placement is S(-1), expected a dim of at least 0 where no tensor is given");
  EXPECT_EQ(Placement(Shard(-1)).counted(2), Placement(Shard(1)));
  EXPECT_THROW(Placement(Shard(-3)).counted(2), std::invalid_argument);
}

}  // namespace weft
