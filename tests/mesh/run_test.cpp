// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "mesh/mesh_body.h"
#include "mesh/plan.h"
#include "src/base/numeric.h"
#include "tests/support/scratch.h"
#include "weft/communicator.h"
#include "weft/ranks.h"

namespace weft {

/// This rank's random addend of a [5, 7] tensor in bf16, equal on ranks with the same `number`.
static std::vector<bfloat16> random_addend(int number) {
  std::mt19937 random(static_cast<unsigned>(number));
  std::normal_distribution<float> normal;
  std::vector<bfloat16> values;
  for (int i = 0; i < 35; ++i) values.push_back(bfloat16(normal(random)));
  return values;
}

/// The sum of the addends in f32, in that order, rounded once.
static std::vector<bfloat16> summed(const std::vector<int>& numbers) {
  std::vector<float> sums(35, 0.0f);
  for (size_t n = 0; n < numbers.size(); ++n) {
    std::vector<bfloat16> addend = random_addend(numbers[n]);
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = n == 0 ? static_cast<float>(addend[i]) : sums[i] + static_cast<float>(addend[i]);
    }
  }
  return {sums.begin(), sums.end()};
}

static bool same_bits(const std::vector<bfloat16>& a, const std::vector<bfloat16>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 2) == 0;
}

/// Partial -> Replicate over axis "tp" of dp=2, tp=3, checked bit by bit.
static void check_sum_bits(const PlanOptions& options) {
  run_ranks(6, [&](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}, {"tp", 3}});
    Ref<Layout> from = layout_of(Sharding(mesh, {{"tp", Partial()}}), {5, 7}, bf16);
    Ref<Layout> to = layout_of(Sharding(mesh, {}), {5, 7}, bf16);
    std::vector<bfloat16> in = random_addend(mesh.coordinate(1)), out(35);
    run(*plan_between(from, to, options), dense_block(in.data(), bf16, {5, 7}),
        dense_block(out.data(), bf16, {5, 7}));
    EXPECT_TRUE(same_bits(out, summed({0, 1, 2})))
        << "sums are f32, in rank order, rounded once, on every rank";
  });
}

TEST(Run, ReplicasHaveEqualBitsHoweverTheyAreMade) {
  for (bool collectives : {false, true}) {
    for (bool two_step : {false, true}) {
      check_sum_bits({.two_step = two_step, .collectives = collectives});
    }
  }
}

TEST(Run, AnAverageIsDividedOnce) {
  for (bool collectives : {false, true}) {
    run_ranks(4, [&](Communicator world) {
      DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
      Placement avg = Partial(ReduceOp::avg);
      Ref<Layout> from = layout_of(Sharding(mesh, {avg, avg}), {3}, f32);
      Ref<Layout> to = layout_of(Sharding(mesh, {}), {3}, f32);
      auto rank = static_cast<float>(mesh.rank());
      std::vector<float> in{rank, 10 * rank, 1}, out(3);
      run(*plan_between(from, to, {.collectives = collectives}), dense_block(in.data(), f32, {3}),
          dense_block(out.data(), f32, {3}));
      EXPECT_EQ(out, (std::vector<float>{1.5f, 15, 1}));
      Ref<Layout> back = layout_of(Sharding(mesh, {avg, Replicate()}), {3}, f32);
      EXPECT_TRUE(local_part(*plan_between(to, back))) << "an average of equals is each of them";
    });
  }
}

TEST(Run, PlansOfLocalStepsCallNobody) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"a", 2}});
    if (mesh.rank() == 1) return;  // the other rank does not take part
    std::vector<float> in{1, 2, 3}, out(3, 9.0f), half(2);
    Ref<Layout> whole = layout_of(Sharding(mesh, {}), {3}, f32);
    run(*plan_between(whole, layout_of(Sharding(mesh, {Partial()}), {3}, f32)),
        dense_block(in.data(), f32, {3}), dense_block(out.data(), f32, {3}));
    EXPECT_EQ(out, in);
    run(*plan_between(whole, layout_of(Sharding(mesh, {Shard(0)}), {3}, f32)),
        dense_block(in.data(), f32, {3}), dense_block(half.data(), f32, {2}));
    EXPECT_EQ(half, (std::vector<float>{1, 2}));
    run(*plan_between(whole, whole), dense_block(out.data(), f32, {3}),
        dense_block(in.data(), f32, {3}));
  });
}

TEST(Run, SumsOfOneCountOnTheFirstRank) {
  run_ranks(3, [](Communicator world) {
    DeviceMesh mesh(world, {{"a", 3}});
    std::vector<float> in{1, 2}, out(2, 9.0f);
    run(*plan_between(layout_of(Sharding(mesh, {}), {2}, f32),
                      layout_of(Sharding(mesh, {Partial()}), {2}, f32)),
        dense_block(in.data(), f32, {2}), dense_block(out.data(), f32, {2}));
    EXPECT_EQ(out, mesh.rank() == 0 ? in : (std::vector<float>{0, 0}));
  });
}

TEST(Run, MetaBlocksHaveNothingToMove) {
  DeviceMesh mesh(fake_world(0, 2), {{"a", 2}});
  Ref<Plan> plan = plan_between(layout_of(Sharding(mesh, {Shard(0)}), {4}, f32),
                                layout_of(Sharding(mesh, {}), {4}, f32));
  int64_t before = mesh.body()->grid().traffic().bytes;
  run(*plan, dense_block(nullptr, f32, {2}, meta), dense_block(nullptr, f32, {4}, meta));
  EXPECT_EQ(mesh.body()->grid().traffic().bytes, before);
}

TEST(Run, BlocksMustBeThoseOfThePlan) {
  DeviceMesh mesh(fake_world(0, 2), {{"a", 2}});
  Ref<Plan> plan = plan_between(layout_of(Sharding(mesh, {Shard(0)}), {4}, f32),
                                layout_of(Sharding(mesh, {}), {4}, f32));
  std::vector<float> in(2), out(4);
  EXPECT_EQ(error_of([&] {
              run(*plan, dense_block(in.data(), f32, {2}), dense_block(out.data(), f32, {3}));
            }),
            "redistribute: blocks are [2] f32 and [3] f32, expected [2] f32 and a dense [4] f32");
}

TEST(Run, AFakeWorldCountsWhatWouldCome) {
  for (bool in_memory : {false, true}) {
    DeviceMesh mesh(fake_world(5, 6, 3, in_memory), {{"a", 2}, {"b", 3}});
    Ref<Layout> from = layout_of(Sharding(mesh, {Partial(), Shard(1)}), {5, 7}, f32);
    Ref<Layout> to = layout_of(Sharding(mesh, {Shard(1), Replicate()}), {5, 7}, f32);
    Ref<Plan> plan = plan_between(from, to);
    std::vector<float> in(35, 1.0f), out(35);
    int64_t before = mesh.body()->grid().traffic().bytes;
    run(*plan, dense_block(in.data(), f32, from->box.shape),
        dense_block(out.data(), f32, to->box.shape));
    EXPECT_EQ(mesh.body()->grid().traffic().bytes - before, plan->cost.bytes);
    EXPECT_GT(plan->cost.bytes, 0);
  }
}

}  // namespace weft
