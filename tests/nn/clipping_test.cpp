// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/layers.h"
#include "weft/optimizers.h"
#include "weft/ranks.h"

namespace weft {
namespace {

/// A parameter with that layout whose gradient is `numbers`; an empty mesh means one device.
ParameterPtr with_gradient(const Shape& shape, const DeviceMesh& mesh,
                           const Placements& placements) {
  auto parameter = std::make_shared<Parameter>(shape, f32, constant_values(0));
  const auto laid = [&](const Tensor& whole) {
    return mesh ? distribute(whole, mesh, placements) : whole;
  };
  parameter->set_value(laid(zeros(shape)));
  parameter->value().set_grad(laid(numbers(shape)));
  return parameter;
}

double squares_of(const std::vector<ParameterPtr>& parameters) {
  double squares = 0;
  for (const ParameterPtr& parameter : parameters) {
    for (double value : small_numbers(parameter->shape())) squares += value * value;
  }
  return squares;
}

/// Checks that the norm is equal on all ranks and takes `collectives` collectives of all these
/// meshes, which share one communicator.
void expect_norm(const std::vector<ParameterPtr>& parameters, const std::vector<DeviceMesh>& meshes,
                 int64_t collectives) {
  const auto calls = [&] {
    int64_t sum = 0;
    for (const DeviceMesh& mesh : meshes) sum += mesh.traffic().collectives;
    return sum - (static_cast<int64_t>(meshes.size()) - 1) *
                     meshes[0].communicator().traffic().collectives;
  };
  const int64_t before = calls();
  const double norm = gradient_norm(parameters).item();
  EXPECT_EQ(calls() - before, collectives);
  const double expected = std::sqrt(squares_of(parameters));
  EXPECT_NEAR(norm, expected, 1e-5 * expected);
}

/// Tensor-parallel, data-parallel, both, replicated and local parameters; uneven, some ranks empty.
TEST(Clipping, TakesOneAllReduceForAnyLayouts) {
  for (const auto& [dp, tp] : {std::pair{2, 2}, {3, 1}, {1, 3}, {1, 1}}) {
    on_mesh({{"dp", dp}, {"tp", tp}}, [](const DeviceMesh& mesh) {
      const bool cut = mesh.size() > 1;
      const std::vector<ParameterPtr> parameters = {
          with_gradient({7, 3}, mesh, {{"tp", Shard(0)}}),
          with_gradient({5, 4}, mesh, {{"dp", Shard(0)}}),
          with_gradient({3, 5}, mesh,
                        Placements({Shard(0), Shard(0)}).cut_in_order(0, {"tp", "dp"})),
          with_gradient({1, 2}, mesh, {Shard(0), Shard(0)}),
          with_gradient({6}, mesh, {}),
          with_gradient({2, 2}, {}, {}),
      };
      expect_norm(parameters, {mesh}, cut);
      // Another rank may hold a sharded parameter, so the whole mesh takes part.
      expect_norm({parameters[4], parameters[5]}, {mesh}, cut);
      expect_norm({parameters[0], parameters[4]}, {mesh}, cut);
      expect_norm({parameters[5]}, {mesh}, 0);
      EXPECT_NEAR(clip_grad_norm(parameters, 1), std::sqrt(squares_of(parameters)), 1e-4);
      EXPECT_NEAR(gradient_norm(parameters).item(), 1, 1e-5);
    });
  }
}

TEST(Clipping, TakesNormsOfAnyOrder) {
  on_mesh({{"dp", 2}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    const std::vector<ParameterPtr> parameters = {with_gradient({7, 3}, mesh, {{"tp", Shard(0)}}),
                                                  with_gradient({1, 2}, mesh, {Shard(0), Shard(0)}),
                                                  with_gradient({6}, mesh, {}),
                                                  with_gradient({2, 2}, {}, {})};
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double order : {1.0, 3.0, 0.5, infinity}) {
      double sum = 0, greatest = 0;
      for (const ParameterPtr& parameter : parameters) {
        for (const double value : small_numbers(parameter->shape())) {
          sum += std::pow(std::abs(value), order);
          greatest = std::max(greatest, std::abs(value));
        }
      }
      const double expected = order == infinity ? greatest : std::pow(sum, 1 / order);
      EXPECT_NEAR(gradient_norm(parameters, order).item(), expected, 1e-6 * expected);
    }
    EXPECT_EQ(error_of([&] { gradient_norm(parameters, -infinity); }),
              "gradient norm: norm_type is -inf, expected one above 0");
  });
}

TEST(Clipping, TakesThreeAxes) {
  on_mesh({{"replicate", 2}, {"shard", 1}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    expect_norm({with_gradient({5, 3}, mesh, {{"replicate", Shard(0)}, {"tp", Shard(1)}}),
                 with_gradient({5, 3}, mesh, {{"shard", Shard(0)}, {"tp", Shard(1)}}),
                 with_gradient({3}, mesh, {{"shard", Shard(0)}})},
                {mesh}, 1);
  });
}

TEST(Clipping, TakesSeveralMeshesOfTheSameRanks) {
  run_ranks(4, [](Communicator world) {
    const DeviceMesh flat(world, {{"dp", 4}}), grid(world, {{"ep", 2}, {"dp", 2}});
    expect_norm(
        {with_gradient({7, 3}, flat, {Shard(0)}), with_gradient({5}, grid, {{"ep", Shard(0)}}),
         with_gradient({4}, grid, {}), with_gradient({2}, flat, {})},
        {flat, grid}, 1);
  });
}

/// Ranks 0 and 1 hold one parameter, 2 and 3 another; all hold the third.
TEST(Clipping, TakesMeshesOfSomeRanks) {
  run_ranks(4, [](Communicator world) {
    const int half = world.rank() / 2;
    const DeviceMesh all(world, {{"dp", 4}});
    const DeviceMesh some(world.split(half, world.rank(), "half"), {{"ep", 2}});
    const std::vector<ParameterPtr> parameters{with_gradient({7, 3}, all, {Shard(0)}),
                                               with_gradient({5}, some, {Shard(0)})};
    const double both = squares_of(parameters) + squares_of({parameters[1]});
    EXPECT_NEAR(gradient_norm(parameters).item(), std::sqrt(both), 1e-5 * std::sqrt(both));
  });
}

/// Only ranks 0 and 1 hold the sharded parameter.
TEST(Clipping, TakesMeshesThatOtherRanksDoNotHave) {
  run_ranks(4, [](Communicator world) {
    const DeviceMesh all(world, {{"dp", 4}});
    const DeviceMesh some(world.split(world.rank() / 2, world.rank(), "half"), {{"ep", 2}});
    for (const Placements& placements : {Placements{}, Placements{Shard(0)}}) {
      std::vector<ParameterPtr> parameters{with_gradient({7, 3}, all, placements)};
      const ParameterPtr cut = with_gradient({5}, some, {Shard(0)});
      const double both = squares_of({parameters[0], cut});
      if (world.rank() < 2) parameters.push_back(cut);
      EXPECT_NEAR(gradient_norm(parameters).item(), std::sqrt(both), 1e-5 * std::sqrt(both));
    }
  });
}

TEST(Clipping, NamesMeshesThatHaveNothingInCommon) {
  run_ranks(2, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    const DeviceMesh other(world.split(0, world.rank(), "other"), {{"ep", 2}});
    const std::vector<ParameterPtr> parameters{with_gradient({4}, mesh, {Shard(0)}),
                                               with_gradient({4}, other, {Shard(0)})};
    const std::string error = error_of([&] { gradient_norm(parameters); });
    EXPECT_TRUE(has(error, "gradient norm: tensors are laid out over mesh(dp=2) of "));
    EXPECT_NE(error.find("expected ranks of which one has all of the other"), error.npos);
  });
}

/// The partners of a pair along one mesh differ from those along the other.
TEST(Clipping, NamesMeshesThatCross) {
  run_ranks(4, [](Communicator world) {
    const int rank = world.rank();
    const DeviceMesh rows(world.split(rank / 2, rank, "rows"), {{"tp", 2}});
    const DeviceMesh columns(world.split(rank % 2, rank, "columns"), {{"dp", 2}});
    const DeviceMesh alone(world.split(rank, 0, "alone"), {{"ep", 1}});
    const auto cut = with_gradient({4}, rows, {Shard(0)}), whole = with_gradient({4}, columns, {});
    const std::string error = error_of([&] { gradient_norm({cut, whole}); });
    EXPECT_NE(error.find("expected ranks of which one has all of the other"), error.npos) << error;
    const double expected = std::sqrt(squares_of({cut}) + 2 * squares_of({cut}));
    const double norm = gradient_norm({cut, with_gradient({4}, alone, {Shard(0)})}).item();
    EXPECT_NEAR(norm, expected, 1e-5 * expected);
  });
}

TEST(Clipping, GradientsOfF64NeedNotFitF32) {
  auto parameter = std::make_shared<Parameter>(Shape{2}, f64, constant_values(0));
  parameter->materialize(cpu);
  parameter->value().set_grad(full({2}, 3e25, {.dtype = f64}));
  EXPECT_NEAR(clip_grad_norm({parameter}, 1) / std::sqrt(18e50), 1, 1e-12);
  for (const double value : parameter->grad().to_vector<double>()) {
    EXPECT_NEAR(value, std::sqrt(0.5), 1e-6);
  }
  parameter->value().set_grad(full({2}, 3e60, {.dtype = f64}));
  clip_grad_norm({parameter}, 1);
  EXPECT_NEAR(parameter->grad().to_vector<double>()[0], std::sqrt(0.5), 1e-12);
}

/// Some ranks of one reduction have a gradient of f64.
TEST(Clipping, RanksMayHaveGradientsOfOtherDtypes) {
  run_ranks(4, [](Communicator world) {
    const int half = world.rank() / 2;
    const DeviceMesh all(world, {{"dp", 4}});
    const DeviceMesh some(world.split(half, world.rank(), "half"), {{"ep", 2}});
    std::vector<ParameterPtr> parameters{with_gradient({8}, all, {Shard(0)})};
    double expected = squares_of(parameters);
    if (half == 1) {
      auto exact = std::make_shared<Parameter>(Shape{4}, f64, constant_values(0));
      const Sharding by_rows(some, {Shard(0)});
      exact->set_value(zeros({4}, {.dtype = f64, .sharding = by_rows}));
      exact->value().set_grad(full({4}, 3, {.dtype = f64, .sharding = by_rows}));
      parameters.push_back(exact);
    }
    expected += 4 * 9;
    EXPECT_NEAR(gradient_norm(parameters).item(), std::sqrt(expected), 1e-5 * std::sqrt(expected));
  });
}

TEST(Clipping, LimitsElements) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    const std::vector<ParameterPtr> parameters = {
        with_gradient({2, 3}, mesh, {{"dp", Shard(0)}}),
        std::make_shared<Parameter>(Shape{2}, f32, constant_values(0))};
    std::vector<double> expected = small_numbers({2, 3});
    for (double& value : expected) value = std::clamp(value, -0.5, 0.5);
    clip_grad_value(parameters, 0.5);
    EXPECT_EQ(parameters[0]->grad().full_tensor().to_vector<double>(), expected);
  });
}

}  // namespace
}  // namespace weft
