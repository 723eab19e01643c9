// SPDX-License-Identifier: Apache-2.0
#include "weft/mesh.h"

#include <gtest/gtest.h>

#include <sstream>

#include "mesh/mesh_body.h"
#include "tests/support/scratch.h"
#include "weft/communicator.h"
#include "weft/ranks.h"

namespace weft {

TEST(Mesh, KnowsItsAxes) {
  DeviceMesh mesh(fake_world(5, 6), {{"dp", 2}, {"tp", 3}});
  EXPECT_EQ(mesh.ndim(), 2);
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.axis_name(1), "tp");
  EXPECT_EQ(mesh.axis_size(1), 3);
  EXPECT_EQ(mesh.axis("tp"), 1);
  EXPECT_EQ(mesh.coordinate(0), 1);
  EXPECT_EQ(mesh.coordinate(1), 2);
  EXPECT_EQ(mesh.rank(), 5);
  std::ostringstream text;
  text << mesh;
  EXPECT_EQ(text.str(), "mesh(dp=2, tp=3)");
}

TEST(Mesh, NamesTheGroupsOfItsAxes) {
  const Communicator world = fake_world(5, 6);
  const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 3}});
  MeshGrid& grid = mesh.body()->grid();
  const auto name = [&](const Axes& axes) { return grid.group(axes).name(); };
  EXPECT_EQ(name({1}), world.name() + "/tp");
  EXPECT_EQ(name({1, 0}), world.name() + "/tp+dp");
  EXPECT_EQ(name({0, 1}), world.name());
  EXPECT_EQ(name({}), world.name() + "/self");
  EXPECT_EQ(grid.group({}).size(), 1);
}

TEST(Mesh, RefusesWhatIsNoMesh) {
  Communicator world = fake_world(0, 4);
  auto mistake = [&](std::vector<MeshAxis> axes) {
    return error_of([&] { DeviceMesh mesh(world, axes); });
  };
  EXPECT_EQ(mistake({{"dp", 2}, {"tp", 3}}),
            "mesh(dp=2, tp=3): number of its ranks is 6, expected 4, those of the communicator \"" +
                world.name() + "\"");
  EXPECT_EQ(mistake({{"dp", 5}}),
            "mesh(dp=5): number of its ranks is 5, expected 4, those of the communicator \"" +
                world.name() + "\"");
  EXPECT_EQ(mistake({{"dp", 2}, {"dp", 2}}),
            "mesh(dp=2, dp=2): two axes are called \"dp\", expected different names");
  EXPECT_EQ(mistake({{"", 4}}), "mesh(=4): name of axis 0 is empty, expected one");
  EXPECT_EQ(mistake({{"dp", 0}}), "mesh(dp=0): size of axis \"dp\" must be at least 1, got 0");
  EXPECT_EQ(mistake({}), "mesh: number of axes is 0, expected at least 1");
  EXPECT_EQ(mistake(std::vector<MeshAxis>(9, {"x", 1})),
            "mesh: number of axes is 9, expected at most 8");
  EXPECT_EQ(mistake({{"a", 1 << 30}, {"b", 1 << 30}, {"c", 16}}).substr(0, 8), "mesh(a=1");
}

TEST(Mesh, ViewsNameAxesOfTheRoot) {
  DeviceMesh mesh(fake_world(7, 12), {{"pp", 2}, {"dp", 2}, {"tp", 3}});
  DeviceMesh tp = mesh["tp"], joined = mesh[{"tp", "pp"}];
  EXPECT_EQ(tp.ndim(), 1);
  EXPECT_EQ(tp.size(), 3);
  EXPECT_EQ(tp.root_axis(0), 2);
  EXPECT_EQ(tp.root(), mesh);
  EXPECT_EQ(joined.size(), 6);
  EXPECT_EQ(joined.axis("pp"), 1);
  EXPECT_EQ(joined["pp"], mesh["pp"]);
  EXPECT_FALSE(tp == mesh["dp"]);
  EXPECT_EQ(mesh[std::string("dp")].coordinate(0), 0);
  EXPECT_EQ(error_of([&] { tp["dp"]; }), "mesh(tp=3): axis \"dp\" does not exist");
  EXPECT_EQ(error_of([&] {
              mesh[{"dp", "dp"}];
            }),
            "mesh(pp=2, dp=2, tp=3): axis \"dp\" of a view is named twice, expected once");
  EXPECT_EQ(error_of([&] { tp.axis_size(1); }),
            "mesh(tp=3): axis is 1, expected one of its 1 axes");
}

TEST(Mesh, AbsentWhereTheCommunicatorIsEmpty) {
  DeviceMesh mesh(Communicator(), {{"dp", 2}});
  EXPECT_FALSE(mesh);
  EXPECT_EQ(mesh, DeviceMesh());
  EXPECT_THROW(mesh["dp"], std::invalid_argument);
  EXPECT_THROW(mesh.rank(), std::invalid_argument);
}

TEST(Mesh, GroupsFollowTheAxes) {
  run_ranks(6, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}, {"tp", 3}});
    Communicator dp = mesh["dp"].communicator(), tp = mesh["tp"].communicator();
    EXPECT_EQ(dp.size(), 2);
    EXPECT_EQ(tp.size(), 3);
    EXPECT_EQ(dp.rank(), world.rank() / 3);
    EXPECT_EQ(tp.rank(), world.rank() % 3);
    EXPECT_EQ(tp.name(), "world/tp");
    EXPECT_EQ(mesh.communicator(), world);
    Communicator turned = mesh[{"tp", "dp"}].communicator();
    EXPECT_EQ(turned.size(), 6);
    EXPECT_EQ(turned.rank(), world.rank() % 3 * 2 + world.rank() / 3);
    EXPECT_EQ(turned, (mesh[{"tp", "dp"}].communicator()));
  });
}

TEST(Mesh, JoinedAxesAreMadeByTheirGroupAlone) {
  run_ranks(8, [](Communicator world) {
    DeviceMesh mesh(world, {{"a", 2}, {"b", 2}, {"c", 2}});
    if (mesh.coordinate(1) == 0) return;  // the other ranks do nothing
    Communicator joined = mesh[{"a", "c"}].communicator();
    EXPECT_EQ(joined.size(), 4);
    EXPECT_EQ(joined.name(), "world/a+c");
    joined.barrier();
  });
}

TEST(Mesh, EqualMeshesAreOne) {
  run_ranks(4, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    DeviceMesh again(world, {{"dp", 2}, {"tp", 2}}), other(world, {{"dp", 4}});
    EXPECT_EQ(mesh, again);
    EXPECT_EQ(mesh.body(), again.body());
    EXPECT_FALSE(mesh == other);
    EXPECT_FALSE(mesh == mesh["dp"]);
    EXPECT_EQ(Sharding(mesh, {Shard(0)}), Sharding(again, {Shard(0)}));
  });
}

TEST(Mesh, OneRankThatForgotMakesAllMakeItAnew) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh kept;
    {
      DeviceMesh mesh(world, {{"dp", 2}});
      if (world.rank() == 0) kept = mesh;
    }
    DeviceMesh again(world, {{"dp", 2}});
    again["dp"].communicator().barrier();
    if (kept) {
      EXPECT_EQ(kept, again);
    }
  });
}

TEST(Mesh, OneRankMayHaveManyAxes) {
  run_ranks(1, [](Communicator world) {
    DeviceMesh mesh(world, {{"dp", 1}, {"tp", 1}});
    EXPECT_EQ(mesh.size(), 1);
    EXPECT_EQ(mesh["tp"].communicator().size(), 1);
    EXPECT_EQ(mesh.body()->grid().traffic().collectives, 0);
  });
}

TEST(Mesh, NothingOfItStaysWhenTheLastHolderGoes) {
  std::weak_ptr<MeshBody> body;
  std::weak_ptr<MeshGrid> grid;
  Ref<Layout> layout;
  {
    DeviceMesh mesh(fake_world(0, 4), {{"dp", 2}, {"tp", 2}});
    body = mesh.body();
    grid = mesh.body()->grid().weak_from_this();
    layout = layout_of(Sharding(mesh, {Shard(0)}), {8}, f32);
    plan_between(layout, layout_of(Sharding(mesh, {}), {8}, f32));
    // The table's type belongs to ops; here it owns what a table would.
    mesh.body()->routes = {std::make_shared<Ref<Layout>>(layout), nullptr};
  }
  EXPECT_TRUE(body.expired()) << "the tables go with the last handle of the mesh";
  EXPECT_FALSE(grid.expired()) << "a layout keeps what it describes";
  EXPECT_EQ(layout.get()->use_count(), 1u);
  layout = {};
  EXPECT_TRUE(grid.expired());
}

TEST(Mesh, ATensorThatOutlivesItsMeshIsUsable) {
  std::weak_ptr<MeshGrid> grid;
  {
    Ref<Layout> layout;
    {
      DeviceMesh mesh(fake_world(1, 4), {{"dp", 4}});
      grid = mesh.body()->grid().weak_from_this();
      layout = layout_of(Sharding(mesh, {Shard(0)}), {8}, f32);
    }
    DeviceMesh found = layout->sharding.mesh();
    EXPECT_EQ(found.rank(), 1);
    Ref<Layout> whole = layout_of(Sharding(found, {}), {8}, f32);
    EXPECT_GT(plan_between(layout, whole)->cost.bytes, 0);
    EXPECT_EQ(layout_of(layout->sharding, {8}, f32)->box, layout->box);
  }
  DeviceMesh next(fake_world(0, 2), {{"dp", 2}});  // removes cached layouts of tensors
  EXPECT_TRUE(grid.expired());
}

}  // namespace weft
