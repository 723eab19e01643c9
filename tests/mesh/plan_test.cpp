// SPDX-License-Identifier: Apache-2.0
#include "mesh/plan.h"

#include <gtest/gtest.h>

#include "mesh/mesh_body.h"
#include "tests/support/scratch.h"
#include "weft/communicator.h"

namespace weft {

using Kind = PlanStep::Kind;

namespace {

/// A plan between two layouts, for one rank of a fake world.
struct Planned {
  DeviceMesh mesh;
  Ref<Plan> plan;

  std::vector<Kind> kinds() const {
    std::vector<Kind> kinds;
    for (const PlanStep& step : plan->steps) kinds.push_back(step.kind);
    return kinds;
  }
};

Planned planned(const DeviceMesh& mesh, const Shape& shape, const Placements& from,
                const Placements& to, PlanOptions options = {}, DType dtype = f32) {
  Ref<Layout> before = layout_of(Sharding(mesh, from), shape, dtype);
  Ref<Layout> after = layout_of(Sharding(mesh, to), shape, dtype);
  return {mesh, plan_between(before, after, options)};
}

DeviceMesh cluster(int hosts, int ranks, std::vector<MeshAxis> axes) {
  return DeviceMesh(fake_world(0, hosts * ranks, ranks, false), std::move(axes));
}

const Placements kWhole{};

}  // namespace

TEST(Plan, OneStepAKind) {
  DeviceMesh mesh = cluster(1, 4, {{"tp", 4}});
  const Shape shape{1024, 1024};
  EXPECT_EQ(planned(mesh, shape, {Shard(0)}, kWhole).kinds(), std::vector{Kind::all_gather});
  EXPECT_EQ(planned(mesh, shape, {Shard(1)}, kWhole).kinds(), std::vector{Kind::all_gather});
  EXPECT_EQ(planned(mesh, shape, {Partial()}, kWhole).kinds(), std::vector{Kind::all_reduce});
  EXPECT_EQ(planned(mesh, shape, {Partial()}, {Shard(1)}).kinds(),
            std::vector{Kind::reduce_scatter});
  EXPECT_EQ(planned(mesh, shape, {Shard(0)}, {Shard(1)}).kinds(), std::vector{Kind::all_to_all});
  EXPECT_EQ(planned(mesh, shape, kWhole, {Shard(1)}).kinds(), std::vector{Kind::local});
  EXPECT_EQ(planned(mesh, shape, kWhole, {Partial()}).kinds(), std::vector{Kind::local});
  EXPECT_TRUE(planned(mesh, shape, {Shard(0)}, {Shard(0)}).kinds().empty());
}

TEST(Plan, InMemoryAllIsExchanged) {
  DeviceMesh mesh(fake_world(0, 4), {{"tp", 4}});
  const Shape shape{1024, 1024};
  for (const Placements& to : {kWhole, Placements{Shard(1)}}) {
    EXPECT_EQ(planned(mesh, shape, {Shard(0)}, to).kinds(), std::vector{Kind::exchange});
  }
  EXPECT_EQ(planned(mesh, shape, {Partial()}, {Shard(0)}).kinds(), std::vector{Kind::exchange});
  EXPECT_EQ(planned(mesh, shape, kWhole, {Shard(0)}).kinds(), std::vector{Kind::local});
}

TEST(Plan, ReducingInMemoryIsTwoStepsUnlessTiny) {
  DeviceMesh mesh(fake_world(1, 4), {{"dp", 4}});
  Planned large = planned(mesh, {1000, 1000}, {Partial()}, kWhole);
  EXPECT_EQ(large.kinds(), (std::vector{Kind::exchange, Kind::exchange}));
  EXPECT_EQ(large.plan->cost.bytes, 3 * 1000000 + 3 * 1000000);
  EXPECT_EQ(large.plan->cost.peak_bytes, 4000000) << "parts are made in the result";
  Planned tiny = planned(mesh, {8, 8}, {Partial()}, kWhole);
  EXPECT_EQ(tiny.kinds(), std::vector{Kind::exchange});
  EXPECT_EQ(tiny.plan->cost.bytes, 3 * 256);
  PlanOptions two_step{.two_step = true};
  EXPECT_EQ(planned(mesh, {8, 8}, {Partial()}, kWhole, two_step).kinds().size(), 2u);
  EXPECT_EQ(planned(mesh, {}, {Partial()}, kWhole, two_step).kinds().size(), 1u);
}

TEST(Plan, WhatIsLocalIsAView) {
  DeviceMesh mesh(fake_world(3, 4), {{"dp", 2}, {"tp", 2}});
  Planned slice = planned(mesh, {5, 7}, kWhole, {Shard(0), Shard(1)});
  EXPECT_EQ(local_part(*slice.plan), (Box{{3, 4}, {2, 3}}));
  EXPECT_TRUE(slice.plan->is_free());
  EXPECT_EQ(slice.plan->cost.seconds, 0);
  Planned finer = planned(mesh, {5, 7}, {Shard(0)}, {Shard(0), Shard(0)});
  EXPECT_EQ(local_part(*finer.plan), (Box{{1, 0}, {1, 7}}));
  Planned empty = planned(mesh, {2, 7}, {Shard(0)}, {Shard(0), Shard(0)});
  EXPECT_EQ(local_part(*empty.plan), (Box{{0, 0}, {0, 7}}));
  EXPECT_TRUE(local_part(*planned(mesh, {5, 7}, kWhole, {Partial(ReduceOp::max)}).plan));
  Planned zeros = planned(mesh, {5, 7}, kWhole, {Partial()});
  EXPECT_FALSE(local_part(*zeros.plan));
  EXPECT_TRUE(zeros.plan->is_free());
  EXPECT_FALSE(local_part(*planned(mesh, {5, 7}, {Shard(0)}, kWhole).plan));
}

TEST(Plan, AxesOfOneRankCostNothing) {
  DeviceMesh mesh(fake_world(0, 2), {{"a", 1}, {"b", 2}});
  for (const Placements& from : {Placements{Partial()}, Placements{Shard(1)}, kWhole}) {
    for (const Placements& to : {Placements{Partial()}, Placements{Shard(0)}, kWhole}) {
      EXPECT_TRUE(local_part(*planned(mesh, {5, 7}, from, to).plan));
    }
  }
}

TEST(Plan, AcrossHostsOnlyWhatMust) {
  DeviceMesh mesh = cluster(4, 8, {{"dp", 4}, {"tp", 8}});
  const Placements partial{Partial(), Partial()};
  Planned large = planned(mesh, {4096, 4096}, partial, kWhole, {}, bf16);
  EXPECT_EQ(large.kinds(), (std::vector{Kind::reduce_scatter, Kind::all_reduce, Kind::all_gather}));
  EXPECT_EQ(large.plan->steps[0].axes, Axes{1});
  EXPECT_EQ(large.plan->steps[1].axes, Axes{0});
  EXPECT_EQ(large.plan->steps[0].to->dtype, f32) << "f32 between two reductions";
  EXPECT_EQ(large.plan->steps[1].to->dtype, bf16);
  // For a few bytes only waits cost: fewer of them, and those across hosts between few ranks.
  for (const Shape& shape : {Shape{4, 4}, Shape{}}) {
    Planned tiny = planned(mesh, shape, partial, kWhole);
    EXPECT_EQ(tiny.kinds(), (std::vector{Kind::all_reduce, Kind::all_reduce}));
  }
}

TEST(Plan, AxesOfOneLevelReduceTogether) {
  DeviceMesh mesh = cluster(1, 8, {{"dp", 2}, {"tp", 4}});
  Planned reduced = planned(mesh, {4096, 4096}, {Partial(), Partial()}, kWhole);
  EXPECT_EQ(reduced.kinds(), std::vector{Kind::all_reduce});
  EXPECT_EQ(reduced.plan->steps[0].axes, (Axes{0, 1}));
  Planned scattered = planned(mesh, {4096, 4096}, {Partial(), Partial()}, {Shard(0), Shard(0)});
  EXPECT_EQ(scattered.kinds(), std::vector{Kind::reduce_scatter});
  Planned gathered = planned(mesh, {4096, 4096}, {Shard(0), Shard(0)}, kWhole);
  EXPECT_EQ(gathered.kinds(), std::vector{Kind::all_gather});
  EXPECT_EQ(gathered.plan->steps[0].axes, (Axes{0, 1}));
}

TEST(Plan, PeakMemoryIsThatOfUnpacking) {
  DeviceMesh mesh = cluster(1, 4, {{"tp", 4}});
  const int64_t whole = 4 << 20;
  Planned gathered = planned(mesh, {1024, 1024}, {Shard(1)}, kWhole);
  EXPECT_EQ(gathered.plan->cost.peak_bytes, 2 * whole) << "received, then put in their places";
}

TEST(Plan, Mistakes) {
  DeviceMesh mesh(fake_world(0, 4), {{"dp", 4}});
  Ref<Layout> a = layout_of(Sharding(mesh, {Shard(0)}), {4, 4}, f32);
  EXPECT_THROW(plan_between(a, layout_of(a->sharding, {4, 5}, f32)), std::invalid_argument);
  EXPECT_THROW(plan_between(a, layout_of(a->sharding, {4, 4}, bf16)), std::invalid_argument);
  EXPECT_THROW(plan_between(a, layout_of({}, {4, 4}, f32)), std::invalid_argument);
  DeviceMesh other(fake_world(0, 4), {{"dp", 4}});
  EXPECT_EQ(
      error_of([&] {
        plan_between(a, layout_of(Sharding(other, {Shard(1)}), {4, 4}, f32));
      }),
      "redistribute: target is [4, 4] f32 mesh(dp=4)[S(1)], expected the shape, dtype and mesh of "
      "[4, 4] f32 mesh(dp=4)[S(0)]");
  EXPECT_THROW(planned(mesh, {4}, {Partial(ReduceOp::avg)}, kWhole, {}, i64),
               std::invalid_argument);
}

TEST(Plan, PredictionsAreEqualOnAllRanks) {
  std::vector<double> seconds;
  for (int rank = 0; rank < 6; ++rank) {
    DeviceMesh mesh(fake_world(rank, 6), {{"a", 2}, {"b", 3}});
    seconds.push_back(
        planned(mesh, {7, 5}, {Shard(0), Partial()}, {Shard(1), Shard(0)}).plan->cost.seconds);
    EXPECT_EQ(seconds.front(), seconds.back());
  }
  EXPECT_GT(seconds[0], 0);
}

TEST(Plan, ExplainsItself) {
  DeviceMesh one = cluster(1, 4, {{"tp", 4}});
  EXPECT_EQ(to_string(*planned(one, {64, 512}, {Partial()}, {Shard(0)}).plan),
            "[64, 512] f32 mesh(tp=4)[P(sum)] -> [64, 512] f32 mesh(tp=4)[S(0)]\n"
            "reduce_scatter over tp: P(sum) -> S(0), 96.0 KiB, 16.0 µs\n"
            "received 96.0 KiB, predicted 16.0 µs, peak memory 32.0 KiB\n");
  DeviceMesh two = cluster(2, 2, {{"dp", 2}, {"tp", 2}});
  EXPECT_EQ(to_string(*planned(two, {4, 4}, {Shard(0), Replicate()}, {Shard(0), Shard(1)}).plan),
            "[4, 4] f32 mesh(dp=2, tp=2)[S(0), R] -> [4, 4] f32 mesh(dp=2, tp=2)[S(0), S(1)]\n"
            "local: [S(0), R] -> [S(0), S(1)]\n"
            "received 0 B, predicted 0.0 µs, peak memory 16 B\n");
  EXPECT_EQ(to_string(*planned(one, {4}, kWhole, kWhole).plan),
            "[4] f32 mesh(tp=4)[R] -> [4] f32 mesh(tp=4)[R]\nnothing to do\n");
}

TEST(Plan, ExplainNamesJoinedAxesAndWideValues) {
  DeviceMesh mesh = cluster(4, 8, {{"dp", 4}, {"tp", 8}});
  std::string text =
      to_string(*planned(mesh, {4096, 4096}, {Partial(), Partial()}, kWhole, {}, bf16).plan);
  EXPECT_TRUE(has(text, "reduce_scatter over tp: [P(sum), P(sum)] -> [P(sum), S(0)] in f32"));
  DeviceMesh host = cluster(1, 4, {{"dp", 2}, {"tp", 2}});
  std::string joined = to_string(*planned(host, {4, 4}, {Shard(0), Shard(1)}, kWhole).plan);
  EXPECT_NE(joined.find("all_gather over dp+tp: "), std::string::npos) << joined;
}

TEST(Plan, IsOneEntryOfABoundedCache) {
  DeviceMesh mesh(fake_world(0, 4), {{"dp", 4}});
  Ref<Plan> plan = planned(mesh, {8}, {Shard(0)}, kWhole).plan;
  EXPECT_EQ(plan, planned(mesh, {8}, {Shard(0)}, kWhole).plan);
  EXPECT_FALSE(plan == planned(mesh, {8}, {Shard(0)}, kWhole, {.collectives = true}).plan);
  for (int64_t size = 0; size < 5000; ++size) planned(mesh, {size}, {Shard(0)}, kWhole);
  EXPECT_LE(mesh.body()->plans.statistics().entries, 1024);
  EXPECT_GT(mesh.body()->plans.statistics().evictions, 3000);
  EXPECT_EQ(plan, planned(mesh, {8}, {Shard(0)}, kWhole).plan) << "held plans stay";
}

TEST(Plan, ManyAxesArePlanned) {
  DeviceMesh mesh(fake_world(0, 64, 8, false), {{"a", 2}, {"b", 4}, {"c", 2}, {"d", 4}});
  const Placements from{Partial(), Shard(0), Shard(1), Partial()};
  const Placements to{Shard(1), Shard(2), Shard(0), Replicate()};
  Planned hard = planned(mesh, {64, 64, 64}, from, to);
  EXPECT_GE(hard.plan->steps.size(), 2u);
  EXPECT_EQ(hard.plan->steps.back().to, hard.plan->to);
}

}  // namespace weft
