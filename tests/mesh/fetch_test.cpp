// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "mesh/mesh_body.h"
#include "mesh/plan.h"
#include "tests/mesh/whole.h"
#include "weft/communicator.h"
#include "weft/ranks.h"

namespace weft {

namespace {

/// Rank r requests rows from r - 1 on, and one column more than exists: boxes overlap, exceed the
/// tensor and may be empty.
Box wish_of(int rank, const Shape& shape) {
  return {{rank - 1, rank % 2 ? -1 : 1}, {rank == 2 ? 0 : 3, shape[1]}};
}

void check_fetch(const LieOnMesh& one, const Shape& shape, const Communicator& world) {
  std::vector<MeshAxis> axes;
  for (size_t a = 0; a < one.mesh.size(); ++a) axes.push_back({std::to_string(a), one.mesh[a]});
  DeviceMesh mesh(world, axes);
  Ref<Layout> from = layout_of(one.lie.on(mesh), shape, f32);
  std::vector<float> in = values_of(one.lie, shape, one.mesh, mesh.rank());
  Box wish = wish_of(mesh.rank(), shape);
  std::vector<float> out(static_cast<size_t>(wish.shape.product()) + 1, 99.0f);
  fetch(
      from, dense_block(in.data(), f32, from->box.shape),
      [&](int rank) { return wish_of(rank, shape); }, dense_block(out.data(), f32, wish.shape));
  size_t i = 0;
  std::vector<int> at = coordinates_at(one.mesh, mesh.rank());
  for (int64_t row = 0; row < wish.shape[0]; ++row) {
    for (int64_t column = 0; column < wish.shape[1]; ++column) {
      int64_t r = row + wish.offset[0], c = column + wish.offset[1];
      bool outside = r < 0 || c < 0 || r >= shape[0] || c >= shape[1];
      double expected = outside ? 99 : addend(one.lie, one.mesh, at, r, c);
      ASSERT_EQ(out[i++], expected) << "rank " << mesh.rank() << ": " << r << ", " << c;
    }
  }
  EXPECT_EQ(out[i], 99.0f);
}

}  // namespace

TEST(Fetch, ReadsAnyBoxes) {
  for (const LieOnMesh& one : lies_on_meshes()) {
    int ranks = 1;
    for (int size : one.mesh) ranks *= size;
    run_ranks(ranks, [&](Communicator world) {
      for (const Shape& shape : {Shape{5, 7}, Shape{3, 2}, Shape{1, 4}, Shape{0, 3}}) {
        check_fetch(one, shape, world);
      }
    });
  }
}

TEST(Fetch, CountsWhatComesFromOthers) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"a", 2}});
    Ref<Layout> from = layout_of(Sharding(mesh, {Shard(0)}), {4, 3}, f32);
    std::vector<float> in(6, 1.0f), out(12);
    int64_t before = world.traffic().bytes;
    fetch(
        from, dense_block(in.data(), f32, {2, 3}),
        [](int) {
          return Box{{0, 0}, {4, 3}};
        },
        dense_block(out.data(), f32, {4, 3}));
    EXPECT_EQ(world.traffic().bytes - before, 6 * 4);
  });
}

TEST(Fetch, WithoutAMeshIsACopy) {
  std::vector<float> in{1, 2, 3, 4}, out{9, 9, 9};
  fetch(
      layout_of({}, {4}, f32), dense_block(in.data(), f32, {4}),
      [](int) {
        return Box{{2}, {3}};
      },
      dense_block(out.data(), f32, {3}));
  EXPECT_EQ(out, (std::vector<float>{3, 4, 9}));
}

TEST(Fetch, WithoutSharedMemoryTheBoxesAreSent) {
  // In a fake world only this rank's part arrives; the bytes of the others are counted.
  DeviceMesh mesh(fake_world(1, 4, 2, false), {{"a", 4}});
  Ref<Layout> from = layout_of(Sharding(mesh, {Shard(0)}), {8}, f32);
  std::vector<float> in{2, 3}, out(4);
  CommunicatorTraffic before = mesh.body()->grid().traffic();
  fetch(
      from, dense_block(in.data(), f32, {2}),
      [](int rank) {
        return Box{{2 * rank - 1}, {4}};
      },
      dense_block(out.data(), f32, {4}));
  EXPECT_EQ(out[1], 2);
  EXPECT_EQ(out[2], 3);
  EXPECT_EQ(mesh.body()->grid().traffic().bytes - before.bytes, 8);
  EXPECT_EQ(mesh.body()->grid().traffic().collectives - before.collectives, 1);
}

TEST(Fetch, Mistakes) {
  DeviceMesh mesh(fake_world(0, 2), {{"a", 2}});
  Ref<Layout> from = layout_of(Sharding(mesh, {Shard(0)}), {4}, f32);
  std::vector<float> in(2), out(3);
  EXPECT_THROW(fetch(
                   from, dense_block(in.data(), f32, {2}),
                   [](int) {
                     return Box{{0}, {4}};
                   },
                   dense_block(out.data(), f32, {3})),
               std::invalid_argument);
}

}  // namespace weft
