// SPDX-License-Identifier: Apache-2.0
#include "weft/to_mesh.h"

#include <gtest/gtest.h>

#include "tests/mesh/by_messages.h"
#include "tests/support/ranks.h"
#include "weft/autograd.h"
#include "weft/derivatives.h"
#include "weft/error.h"

namespace weft {

namespace {

/// The mesh of some ranks of a group, with one axis; empty on the others.
DeviceMesh mesh_of(const Communicator& world, const std::vector<int>& ranks,
                   std::vector<MeshAxis> axes) {
  if (std::ranges::find(ranks, world.rank()) == ranks.end()) return {};
  return {world.subgroup(ranks, "part"), std::move(axes)};
}

void on_ranks(int ranks, const std::function<void(const Communicator&)>& body) {
  run_ranks(ranks, body, {.deadline = std::chrono::seconds(10), .threads_per_rank = 1});
}

/// Runs `body`, which must throw on this rank, with that text.
void expect_mistake(const std::function<void()>& body, const std::string& text) {
  try {
    body();
    FAIL() << "nothing was thrown instead of: " << text;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(std::string(error.what()), text);
  }
}

}  // namespace

TEST(ToMesh, MovesBetweenDisjointRanks) {
  on_ranks(5, [](const Communicator& world) {
    if (world.rank() == 4) return;
    const std::vector<int> both = {0, 1, 2, 3};
    const Communicator ranks = world.subgroup(both, "both");
    const DeviceMesh from = mesh_of(world, {0, 1}, {{"dp", 2}}),
                     to = mesh_of(world, {3, 2}, {{"tp", 2}});
    Tensor x;
    if (from) x = numbers({5, 7}, 0, Sharding(from, {Shard(0)}));
    const int64_t before = ranks.traffic().bytes;
    const Tensor y = to_mesh(x, to, {{"tp", Shard(1)}}, {.ranks = ranks});
    EXPECT_EQ(static_cast<bool>(y), static_cast<bool>(to));
    const int64_t columns = world.rank() == 3 ? 4 : world.rank() == 2 ? 3 : 0;
    EXPECT_EQ(ranks.traffic().bytes - before, 5 * columns * 4);
    if (to) expect_values(whole_values(y), small_numbers({5, 7}));
  });
}

TEST(ToMesh, MovesWithinTheGreaterMesh) {
  on_ranks(3, [](const Communicator& world) {
    const DeviceMesh all(world, {{"dp", 3}}), one = mesh_of(world, {1}, {{"x", 1}});
    const Tensor x = numbers({4, 5}, 1, Sharding(all, {Shard(0)}));
    const Tensor y = to_mesh(x, one, {});
    EXPECT_EQ(static_cast<bool>(y), world.rank() == 1);
    const Tensor z = to_mesh(y, all, {Shard(1)});
    expect_placements(z, {Shard(1)});
    expect_values(whole_values(z), small_numbers({4, 5}, 1));
  });
}

TEST(ToMesh, RefusesASimulatedWorld) {
  const DeviceMesh mesh(fake_world(1, 4), {{"a", 4}});
  const Tensor x = zeros({8}, {.sharding = Sharding(mesh, {Shard(0)})});
  expect_mistake([&] { (void)to_mesh(x, mesh, {}); },
                 "to_mesh: the world of \"world\" is simulated, expected ranks that exist");
}

TEST(ToMesh, WorksOnOneRank) {
  on_ranks(1, [](const Communicator& world) {
    const DeviceMesh a(world, {{"a", 1}}), b(world, {{"b", 1}});
    const Tensor x = numbers({3}, 0, Sharding(a, {Shard(0)}));
    const Tensor y = to_mesh(x, b, {});
    EXPECT_FALSE(y.storage() == x.storage());
    expect_values(whole_values(y), small_numbers({3}));
  });
}

TEST(ToMesh, TakesAnyLayout) {
  on_ranks(4, [](const Communicator& world) {
    const DeviceMesh a(world, {{"p", 2}, {"q", 2}}), b(world, {{"x", 4}}),
        tail = mesh_of(world, {1, 2, 3}, {{"y", 3}});
    const std::vector<double> values = small_numbers({4, 6});
    const std::vector<Placements> froms = {
        {Partial(), Shard(1)},
        {Partial(), Partial()},
        {Shard(0), Shard(0)},
        Placements{Shard(0), Shard(0)}.cut_in_order(0, {"q", "p"}),
        {Replicate(), Shard{0, {0, 4}}},
    };
    const std::vector<Placements> tos = {{Shard{0, {0, 1, 3}}}, {Partial()}, {Shard(1)}, {}};
    for (const Placements& from : froms) {
      const Tensor x = terms_of(values, {4, 6}, Sharding(a, from));
      for (const Placements& to : tos) {
        const Tensor y = to_mesh(x, tail, to);
        if (tail) expect_values(whole_values(y), values);
      }
      const Tensor folded = reshape(from_values(values, {4, 6}, {.sharding = Sharding(a, {})})
                                        .redistribute({Replicate(), Shard(1)}),
                                    {24});
      ASSERT_EQ(folded.sharding()[1].outer(), 4);
      expect_values(whole_values(to_mesh(folded, b, {Shard{0, {}, 2}})), values);
    }
  });
}

TEST(ToMesh, SendsRoundsWhereMemoryIsNotShared) {
  on_ranks(4, [](const Communicator& threads) {
    const Communicator world(std::make_shared<ByMessages>(threads.transport()));
    const DeviceMesh from = mesh_of(world, {0, 1, 2}, {{"dp", 3}}),
                     to = mesh_of(world, {2, 3}, {{"tp", 2}});
    const auto wide = [&](const std::string& name, const Shape&) {
      return name == "b" ? Placements() : Placements{Shard(1)};
    };
    for (const int64_t round_bytes : {0, 1, 16, 100}) {
      TensorsByName tensors;
      if (from) {
        tensors["a"] = numbers({5, 7}, 0, Sharding(from, {Shard(0)}));
        tensors["b"] = numbers({0, 3}, 0, Sharding(from, {Shard(0)}), DType::bf16);
        tensors["c"] = numbers({3, 2}, 2, Sharding(from, {Shard(1)}), DType::bf16);
        tensors["d"] = numbers({7, 3}, 3, Sharding(from, {}));
      }
      const MeshMove move(tensors, to, wide, {.ranks = world, .round_bytes = round_bytes});
      const int64_t before = world.traffic().bytes;
      const TensorsByName moved = move.run(tensors);
      EXPECT_EQ(world.traffic().bytes - before, move.received_bytes());
      if (!to) continue;
      expect_values(whole_values(moved.at("a")), small_numbers({5, 7}));
      EXPECT_EQ(moved.at("b").shape(), Shape({0, 3}));
      expect_values(whole_values(moved.at("c")), small_numbers({3, 2}, 2));
      expect_values(whole_values(moved.at("d")), small_numbers({7, 3}, 3));
    }
  });
}

TEST(ToMesh, MovesIntoTensorsAgainAndAgain) {
  on_ranks(3, [](const Communicator& world) {
    const DeviceMesh from = mesh_of(world, {0, 1}, {{"dp", 2}}),
                     to = mesh_of(world, {1, 2}, {{"tp", 2}});
    TensorsByName tensors, into;
    if (from) tensors["w"] = numbers({3, 3}, 0, Sharding(from, {Shard(0)}));
    if (to) into["w"] = zeros({3, 3}, {.sharding = Sharding(to, {Shard(1)})});
    const auto columns = [](const std::string&, const Shape&) { return Placements{Shard(1)}; };
    const MeshMove move(tensors, to, columns, {.ranks = world});
    for (int step = 0; step < 3; ++step) {
      if (from) tensors["w"] = numbers({3, 3}, step, Sharding(from, {Shard(0)}));
      move.run(tensors, into);
      if (to) expect_values(whole_values(into["w"]), small_numbers({3, 3}, step));
    }
    EXPECT_EQ(concat(move), move.explain());
  });
}

TEST(ToMesh, MovesGradientsBack) {
  on_ranks(4, [](const Communicator& world) {
    const DeviceMesh from = mesh_of(world, {0, 1, 2}, {{"dp", 3}}),
                     to = mesh_of(world, {2, 3}, {{"tp", 2}});
    for (const Placements& layout : {Placements{Shard(0)}, Placements(), Placements{Partial()}}) {
      TensorsByName tensors;
      if (from) {
        tensors["x"] = terms_of(small_numbers({5, 4}), {5, 4}, Sharding(from, layout));
        tensors["x"].set_requires_grad();
        tensors["unused"] = numbers({2}, 1, Sharding(from, {}));
        tensors["unused"].set_requires_grad();
        tensors["plain"] = numbers({3}, 1, Sharding(from, {}));
      }
      const auto whole = [](const std::string&, const Shape&) { return Placements{Shard(0)}; };
      const TensorsByName moved = to_mesh(tensors, to, whole, {.ranks = world});
      EXPECT_EQ(static_cast<bool>(moved.at("plain")), static_cast<bool>(to));
      ASSERT_TRUE(moved.at("x").requires_grad());
      if (to) {
        const Tensor factors = numbers({5, 4}, 3, Sharding(to, {Shard(1)}));
        sum(mul(mul(moved.at("x"), moved.at("x")), factors)).backward();
      } else {
        moved.at("x").backward();
      }
      if (!from) continue;
      std::vector<double> expected = small_numbers({5, 4});
      const std::vector<double> factors = small_numbers({5, 4}, 3);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] *= 2 * factors[i];
      expect_values(whole_values(tensors["x"].grad()), expected);
      expect_values(whole_values(tensors["unused"].grad()), {0, 0});
    }
  });
}

/// Parts of 8 MiB and more are copied around the caches: whole ones, and rows that begin anywhere.
TEST(ToMesh, LargePartsArrive) {
  on_ranks(2, [](const Communicator& world) {
    constexpr int64_t kRows = 4097, kColumns = 2103;
    const DeviceMesh a(world, {{"a", 2}}), b(world, {{"b", 2}});
    Tensor x = empty({kRows, kColumns}, {.sharding = Sharding(a, {Shard(0)})});
    // The least bits of an element's number.
    const auto element = [&](int64_t row, int64_t column) {
      return static_cast<float>((row * kColumns + column) & 0xffff);
    };
    const auto visit = [&](const Tensor& tensor, int64_t row, int64_t column, const auto& each) {
      const Tensor local = tensor.local();
      auto* at = local.block().as<float>();
      for (int64_t i = 0; i < local.shape()[0]; ++i) {
        for (int64_t j = 0; j < local.shape()[1]; ++j) each(*at++, element(row + i, column + j));
      }
    };
    const bool second = world.rank() == 1;
    visit(x, second ? (kRows + 1) / 2 : 0, 0, [](float& value, float as) { value = as; });
    int64_t wrong = 0;
    const auto compare = [&](float value, float expected) { wrong += value != expected; };
    visit(to_mesh(x, b, {Replicate()}), 0, 0, compare);
    visit(to_mesh(x, b, {Shard(1)}), 0, second ? (kColumns + 1) / 2 : 0, compare);
    EXPECT_EQ(wrong, 0);
  });
}

/// y = sum(moved x cubed): the first derivative is 3 x^2, the second one of its sum 6 x, and the
/// third one 6.
TEST(ToMesh, DerivativesMoveToo) {
  for (const int ranks : {1, 3, 4}) {
    on_ranks(ranks, [](const Communicator& world) {
      const DeviceMesh a(world, {{"a", world.size()}});
      const DeviceMesh b = world.size() == 4 ? DeviceMesh(world, {{"b", 2}, {"c", 2}})
                                             : DeviceMesh(world, {{"b", world.size()}});
      Tensor x = numbers({5, 2}, 1, Sharding(a, {Shard(0)}));
      x.set_requires_grad();
      const Tensor moved = to_mesh(x, b, {Shard(1)});
      const Tensor y = sum(mul(moved, mul(moved, moved)));
      Tensor gradient = grad({y}, {x}, {.create_graph = true})[0];
      const std::vector<double> values = small_numbers({5, 2}, 1);
      std::vector<double> expected = values;
      for (size_t i = 0; i < values.size(); ++i) expected[i] = 3 * values[i] * values[i];
      expect_values(whole_values(gradient), expected);
      gradient = grad({sum(gradient)}, {x}, {.create_graph = true})[0];
      for (size_t i = 0; i < values.size(); ++i) expected[i] = 6 * values[i];
      expect_values(whole_values(gradient), expected);
      sum(gradient).backward();
      expect_values(whole_values(x.grad()), std::vector<double>(values.size(), 6));
    });
  }
}

TEST(ToMesh, RefusesADerivativeThatARankCannotCall) {
  on_ranks(2, [](const Communicator& world) {
    const int first[] = {0};
    const DeviceMesh b(world, {{"b", 2}});
    DeviceMesh a;
    Tensor x;
    if (world.rank() == 0) {
      a = DeviceMesh(world.subgroup(first, "first"), {{"a", 1}});
      x = numbers({4}, 0, Sharding(a, {Shard(0)}));
      x.set_requires_grad();
    }
    const Tensor y = sum(to_mesh(x, b, {}, {.ranks = world}));
    const Tensors inputs = x ? Tensors{x} : Tensors{y};
    expect_mistake([&] { (void)grad({y}, inputs, {.create_graph = true}); },
                   "to_mesh: its gradient has no derivative, expected a backward without "
                   "create_graph; move it between meshes of the same ranks");
  });
}

TEST(ToMesh, NamesWrongTensors) {
  on_ranks(2, [](const Communicator& world) {
    const DeviceMesh a(world, {{"a", 2}}), b(world, {{"b", 2}}), one(world, {{"c", 1}, {"d", 2}});
    const Tensor x = numbers({4}, 0, Sharding(a, {Shard(0)}));
    const auto whole = [](const std::string&, const Shape&) { return Placements(); };
    expect_mistake([&] { (void)to_mesh(numbers({4}), b, {}, {.ranks = world}); },
                   "to_mesh: tensor \"\" has no mesh, expected one over a mesh; use distribute, "
                   "or pass none on ranks outside of its mesh");
    const Tensor elsewhere = numbers({4}, 0, Sharding(one, {}));
    expect_mistake(
        [&] {
          (void)to_mesh({{"x", x}, {"y", elsewhere}}, b, whole);
        },
        "to_mesh: mesh of tensor \"y\" is mesh(c=1, d=2), expected that of the others, "
        "mesh(a=2)");
    expect_mistake(
        [&] {
          (void)to_mesh(x, b, {Shard(0), Shard(0)});
        },
        "sharding: number of placements is 2, expected at most 1, the axes of mesh(b=2)");
    expect_mistake([&] { (void)to_mesh(x, b, {Shard(1)}); },
                   "layout: placement on axis \"b\" is S(1), expected a dim of the 1 of the shape "
                   "[4]");
    expect_mistake(
        [&] {
          (void)to_mesh(x, b, {Shard{0, {1, 2}}});
        },
        "to_mesh: sum of the sizes of S(0: 1+2) is 3, expected 4, the size of dim 0 of "
        "[4]");
    expect_mistake([&] { (void)to_mesh(x, b, {}, {.round_bytes = -1}); },
                   "to_mesh: bytes of a round must be at least 0, got -1");
    const int64_t bytes = world.rank();
    expect_mistake([&] { (void)to_mesh(x, b, {}, {.round_bytes = bytes}); },
                   "to_mesh: bytes of a round are 0 and 1, expected equal ones on all ranks");
    expect_mistake([&] { (void)to_mesh(x, b, world.rank() ? Placements{Shard(0)} : Placements()); },
                   "to_mesh: placements of ranks 0 and 1 differ, expected equal ones");
    const Tensor other = numbers({world.rank() ? 5 : 4}, 0, Sharding(a, {Shard(0)}));
    expect_mistake([&] { (void)to_mesh(other, b, {}); },
                   "to_mesh: tensors of ranks 0 and 1 have different names or layouts, expected "
                   "equal ones");
    const DeviceMesh turned = world.rank() ? one : b;
    expect_mistake([&] { (void)to_mesh(x, turned, {}); },
                   "to_mesh: ranks pass different meshes that tensors move to, expected one");
  });
}

TEST(ToMesh, MovesLayoutsWithoutMemoryAndRefusesTwoKindsOfDevices) {
  on_ranks(2, [](const Communicator& world) {
    const DeviceMesh a = mesh_of(world, {0}, {{"a", 1}}), b(world, {{"b", 2}});
    const auto whole = [](const std::string&, const Shape&) { return Placements{Shard(0)}; };
    TensorsByName planned, mixed;
    Tensor x;
    if (a) {
      x = numbers({4}, 0, Sharding(a, {}));
      planned["x"] = empty({4}, {.device = meta, .sharding = Sharding(a, {})});
      mixed = {{"w", x}, {"x", planned["x"]}};
    }
    const Tensor moved = to_mesh(planned, b, whole).at("x");
    EXPECT_EQ(moved.device().kind, DeviceKind::meta);
    EXPECT_EQ(moved.local().shape(), Shape({2}));
    expect_mistake([&] { (void)to_mesh(mixed, b, whole); },
                   "to_mesh: device of tensor \"x\" is meta, expected the kind of the others, cpu");
    const DeviceMesh planning = b.on(DeviceKind::meta);
    expect_mistake(
        [&] { (void)to_mesh(x, planning, {}); },
        "to_mesh: devices of mesh(b=2) are meta, expected the kind of the tensors', cpu");
    expect_mistake([&] { (void)to_mesh(x, world.rank() ? planning : b, {}); },
                   "to_mesh: devices of ranks 0 and 1 are of two kinds, expected one");
    const TensorsByName tensors = a ? TensorsByName{{"x", x}} : TensorsByName();
    const MeshMove move(tensors, b, whole);
    if (world.rank() == 1) {
      expect_mistake(
          [&] {
            (void)move.run({{"x", numbers({4})}});
          },
          "to_mesh: tensor \"x\" is given on a rank outside of the mesh that tensors "
          "move from, expected none");
    }
  });
}

TEST(ToMesh, NamesWrongRanks) {
  on_ranks(3, [](const Communicator& world) {
    const DeviceMesh a = mesh_of(world, {0, 1}, {{"a", 2}}), b = mesh_of(world, {1, 2}, {{"b", 2}}),
                     first = mesh_of(world, {0}, {{"f", 1}});
    Tensor x, y;
    if (a) x = numbers({4}, 0, Sharding(a, {Shard(0)}));
    if (first) y = numbers({4}, 0, Sharding(first, {}));
    expect_mistake([&] { (void)to_mesh(y, first, {}, {.ranks = world}); },
                   "to_mesh: rank 1 of \"world\" is in neither mesh, expected a group of the ranks "
                   "of both; make it by subgroup");
    expect_mistake([&] { (void)to_mesh(x, DeviceMesh(), {}, {.ranks = world}); },
                   "to_mesh: number of ranks of \"world\" in the mesh that tensors move to is 0, "
                   "expected at least 1; pass a group of the ranks of both meshes");
    const Tensor half = world.rank() == 0 ? x : Tensor();
    expect_mistake([&] { (void)to_mesh(half, b, {}, {.ranks = world}); },
                   "to_mesh: number of ranks of \"world\" in the mesh that tensors move from is 1, "
                   "expected 2, all of its ranks; pass a group of the ranks of both meshes");
    if (world.rank() == 1) {
      expect_mistake([&] { (void)to_mesh(x, b, {}); },
                     "to_mesh: ranks are missing, expected a group of the ranks of both meshes, "
                     "of which neither has all ranks of the other");
    }
    if (world.rank() == 2) {
      expect_mistake([&] { (void)to_mesh(Tensor(), DeviceMesh(), {}); },
                     "to_mesh: this rank has neither a tensor nor the mesh, expected one of them");
    }
    const std::vector<int> pair = {0, 1};
    if (world.rank() == 2) return;
    const Communicator ranks = world.subgroup(pair, "pair");
    const DeviceMesh outside = world.rank() == 1 ? b : DeviceMesh();
    expect_mistake([&] { (void)to_mesh(x, outside, {}, {.ranks = ranks}); },
                   "to_mesh: mesh(b=2) has ranks outside of the group \"pair\", expected a group "
                   "of the ranks of both meshes, in one world");
  });
}

TEST(ToMesh, RefusesOtherTensorsThanPlanned) {
  on_ranks(2, [](const Communicator& world) {
    const DeviceMesh a(world, {{"a", 2}}), b(world, {{"b", 2}});
    const Tensor x = numbers({4}, 0, Sharding(a, {Shard(0)}));
    const auto whole = [](const std::string&, const Shape&) { return Placements(); };
    const MeshMove move({{"x", x}}, b, whole);
    expect_mistake([&] { (void)move.run({}); },
                   "to_mesh: number of tensors is 0, expected 1, for which the move was made");
    expect_mistake(
        [&] {
          (void)move.run({{"y", x}});
        },
        "to_mesh: tensor \"x\" is missing, expected one");
    expect_mistake(
        [&] {
          (void)move.run({{"x", x.redistribute({})}});
        },
        "to_mesh: tensor \"x\" is [4] f32 mesh(a=2)[R], expected [4] f32 "
        "mesh(a=2)[S(0)], for which the move was made");
    expect_mistake(
        [&] {
          move.run({{"x", x}}, {});
        },
        "to_mesh: tensor \"x\" to move into is missing, expected [4] f32 mesh(b=2)[R] "
        "on cpu");
  });
}

}  // namespace weft
