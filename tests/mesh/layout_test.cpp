// SPDX-License-Identifier: Apache-2.0
#include "mesh/plan.h"

#include <gtest/gtest.h>

#include "mesh/mesh_body.h"
#include "tests/support/scratch.h"
#include "weft/communicator.h"

namespace weft {

/// One layout and the box of each rank, in rank order (torch.chunk applied once per axis).
struct BoxTable {
  const char* what;
  std::vector<MeshAxis> axes;
  Placements placements;
  Shape shape;
  std::vector<Box> boxes;
};

static const std::vector<BoxTable>& box_tables() {
  static const std::vector<BoxTable> tables = {
      {"3 ranks, uneven",
       {{"a", 3}},
       {Shard(0)},
       {7, 2},
       {{{0, 0}, {3, 2}}, {{3, 0}, {3, 2}}, {{6, 0}, {1, 2}}}},
      {"last rank empty",
       {{"a", 4}},
       {Shard(1)},
       {5, 3},
       {{{0, 0}, {5, 1}}, {{0, 1}, {5, 1}}, {{0, 2}, {5, 1}}, {{0, 3}, {5, 0}}}},
      {"one dim, two axes",
       {{"a", 2}, {"b", 2}},
       {Shard(0), Shard(0)},
       {5, 7},
       {{{0, 0}, {2, 7}}, {{2, 0}, {1, 7}}, {{3, 0}, {1, 7}}, {{4, 0}, {1, 7}}}},
      {"the other order",
       {{"a", 2}, {"b", 2}},
       Placements{Shard(0), Shard(0)}.cut_in_order(0, {"b", "a"}),
       {5, 7},
       {{{0, 0}, {2, 7}}, {{3, 0}, {1, 7}}, {{2, 0}, {1, 7}}, {{4, 0}, {1, 7}}}},
      {"2 x 3",
       {{"a", 2}, {"b", 3}},
       {Shard(0), Shard(0)},
       {7},
       {{{0}, {2}}, {{2}, {2}}, {{4}, {0}}, {{4}, {1}}, {{5}, {1}}, {{6}, {1}}}},
      {"2 x 3, the other order",
       {{"a", 2}, {"b", 3}},
       Placements{Shard(0), Shard(0)}.cut_in_order(0, {"b", "a"}),
       {7},
       {{{0}, {2}}, {{3}, {2}}, {{6}, {1}}, {{2}, {1}}, {{5}, {1}}, {{7}, {0}}}},
      {"explicit sizes",
       {{"a", 4}},
       {Shard{0, {3, 0, 1, 4}}},
       {8, 2},
       {{{0, 0}, {3, 2}}, {{3, 0}, {0, 2}}, {{3, 0}, {1, 2}}, {{4, 0}, {4, 2}}}},
      {"explicit sizes inside chunks",
       {{"a", 2}, {"b", 2}},
       {Shard(0), Shard{0, {0, 3, 2, 0}}},
       {5},
       {{{0}, {0}}, {{0}, {3}}, {{3}, {2}}, {{5}, {0}}}},
      {"chunks inside explicit sizes, the other order",
       {{"a", 2}, {"b", 2}},
       Placements{Shard(0), Shard{0, {1, 4}}}.cut_in_order(0, {"b", "a"}),
       {5},
       {{{0}, {1}}, {{1}, {2}}, {{1}, {0}}, {{3}, {2}}}},
      {"8 ranks, one dim",
       {{"a", 2}, {"b", 2}, {"c", 2}},
       {Shard(0), Shard(0), Shard(0)},
       {11},
       {{{0}, {2}},
        {{2}, {1}},
        {{3}, {2}},
        {{5}, {1}},
        {{6}, {2}},
        {{8}, {1}},
        {{9}, {1}},
        {{10}, {1}}}},
      {"8 ranks, two dims",
       {{"a", 2}, {"b", 2}, {"c", 2}},
       {Shard(0), Shard(1), Shard(0)},
       {9, 10, 3},
       {{{0, 0, 0}, {3, 5, 3}},
        {{3, 0, 0}, {2, 5, 3}},
        {{0, 5, 0}, {3, 5, 3}},
        {{3, 5, 0}, {2, 5, 3}},
        {{5, 0, 0}, {2, 5, 3}},
        {{7, 0, 0}, {2, 5, 3}},
        {{5, 5, 0}, {2, 5, 3}},
        {{7, 5, 0}, {2, 5, 3}}}},
      {"size 0",
       {{"a", 3}},
       {Shard(0)},
       {0, 3},
       {{{0, 0}, {0, 3}}, {{0, 0}, {0, 3}}, {{0, 0}, {0, 3}}}},
      {"size 1",
       {{"a", 2}, {"b", 2}},
       {Shard(0), Shard(1)},
       {1, 4},
       {{{0, 0}, {1, 2}}, {{0, 2}, {1, 2}}, {{1, 0}, {0, 2}}, {{1, 2}, {0, 2}}}},
      {"partial and replicate are whole",
       {{"a", 2}, {"b", 2}},
       {Partial(), Replicate()},
       {3, 2},
       {{{0, 0}, {3, 2}}, {{0, 0}, {3, 2}}, {{0, 0}, {3, 2}}, {{0, 0}, {3, 2}}}},
      {"an axis of one rank",
       {{"a", 2}, {"b", 1}},
       {Shard(0), Shard(0)},
       {3},
       {{{0}, {2}}, {{2}, {1}}}},
      {"no dims", {{"a", 2}}, {Replicate()}, {}, {{{}, {}}, {{}, {}}}},
  };
  return tables;
}

TEST(Layout, BoxesOfEveryRank) {
  for (const BoxTable& table : box_tables()) {
    auto ranks = static_cast<int>(table.boxes.size());
    for (int rank = 0; rank < ranks; ++rank) {
      DeviceMesh mesh(fake_world(rank, ranks), table.axes);
      Sharding sharding(mesh, table.placements);
      Ref<Layout> layout = layout_of(sharding, table.shape, f32);
      EXPECT_EQ(layout->box, table.boxes[static_cast<size_t>(rank)])
          << table.what << ", rank " << rank << ": " << layout->box.offset << layout->box.shape;
      EXPECT_EQ(layout->box_of(ranks - 1), table.boxes.back()) << table.what;
      EXPECT_EQ(layout->local_strides, dense_strides(layout->box.shape));
    }
  }
}

TEST(Layout, ChunksAreThoseOfTorch) {
  const Chunk by_4[] = {{0, 3}, {3, 3}, {6, 3}, {9, 1}},
              by_6[] = {{0, 2}, {2, 2}, {4, 2}, {6, 2}, {8, 2}, {10, 0}};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(chunk_of(10, 4, i).offset, by_4[i].offset);
    EXPECT_EQ(chunk_of(10, 4, i).length, by_4[i].length);
  }
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(chunk_of(10, 6, i).offset, by_6[i].offset);
    EXPECT_EQ(chunk_of(10, 6, i).length, by_6[i].length);
  }
  EXPECT_EQ(chunk_of(0, 3, 1).length, 0);
}

TEST(Layout, IsOneEntryOfTheCache) {
  DeviceMesh mesh(fake_world(0, 4), {{"a", 4}});
  Sharding sharding(mesh, {Shard(0)});
  Ref<Layout> layout = layout_of(sharding, {8, 2}, f32);
  EXPECT_EQ(layout, layout_of(Sharding(mesh, {{"a", Shard(0)}}), {8, 2}, f32));
  EXPECT_FALSE(layout == layout_of(sharding, {8, 2}, bf16));
  EXPECT_FALSE(layout == layout_of(sharding, {8, 3}, f32));
  EXPECT_FALSE(layout == layout_of(Sharding(mesh, {}), {8, 2}, f32));
  EXPECT_EQ(layout_of({}, {8, 2}, f32), layout_of({}, {8, 2}, f32));
  EXPECT_EQ(layout_of({}, {8, 2}, f32)->box, (Box{{0, 0}, {8, 2}}));
}

TEST(Layout, HashIsOfTheContent) {
  auto hash_on = [](int rank, Placements placements) {
    DeviceMesh mesh(fake_world(rank, 4), {{"a", 2}, {"b", 2}});
    return layout_of(Sharding(mesh, placements), {8, 2}, f32)->hash;
  };
  EXPECT_EQ(hash_on(0, {Shard(0)}), hash_on(3, {{"a", Shard(0)}}));
  EXPECT_NE(hash_on(0, {Shard(0)}), hash_on(0, {Shard(1)}));
  EXPECT_NE(hash_on(0, {Partial()}), hash_on(0, {Partial(ReduceOp::avg)}));
  Placements both{Shard(0), Shard(0)};
  EXPECT_NE(hash_on(0, both), hash_on(0, both.cut_in_order(0, {"b", "a"})));
}

TEST(Layout, DimOutOfRangeIsNamed) {
  DeviceMesh mesh(fake_world(0, 2), {{"tp", 2}});
  EXPECT_EQ(
      error_of([&] {
        layout_of(Sharding(mesh, {Shard(2)}), {4, 8}, f32);
      }),
      "layout: placement on axis \"tp\" is S(2), expected a dim of the 2 of the shape [4, 8]");
  EXPECT_THROW(layout_of(Sharding(mesh, {}), {4, -1}, f32), std::invalid_argument);
}

TEST(Layout, CacheIsBoundedAndKeepsWhatIsHeld) {
  DeviceMesh mesh(fake_world(0, 2), {{"a", 2}});
  Sharding sharding(mesh, {Shard(0)});
  Ref<Layout> held = layout_of(sharding, {1, 1}, f32);
  for (int64_t size = 0; size < 20000; ++size) layout_of(sharding, {size, 2}, f32);
  CacheStatistics statistics = mesh.body()->layouts.statistics();
  EXPECT_LE(statistics.entries, 4096);
  EXPECT_GT(statistics.evictions, 15000);
  EXPECT_EQ(layout_of(sharding, {1, 1}, f32), held);
  EXPECT_EQ(mesh.body()->layouts.statistics().misses, statistics.misses);
}

TEST(Layout, AFullCacheOfHeldEntriesGrows) {
  DeviceMesh mesh(fake_world(0, 2), {{"a", 2}});
  Sharding sharding(mesh, {Shard(0)});
  std::vector<Ref<Layout>> held;
  for (int64_t size = 0; size < 9000; ++size) held.push_back(layout_of(sharding, {size}, f32));
  for (int64_t size = 0; size < 9000; ++size) {
    ASSERT_EQ(layout_of(sharding, {size}, f32), held[static_cast<size_t>(size)]);
  }
  EXPECT_EQ(mesh.body()->layouts.statistics().evictions, 0);
}

}  // namespace weft
