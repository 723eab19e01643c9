// SPDX-License-Identifier: Apache-2.0
#include "weft/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/context.h"
#include "weft/layers.h"
#include "weft/ranks.h"

namespace weft {
namespace {

/// Largest absolute value and standard deviation, of values with mean 0.
std::pair<double, double> spread_of(const Tensor& tensor) {
  double largest = 0, squares = 0;
  const std::vector<double> values = tensor.full_tensor().to_vector<double>();
  for (const double value : values) {
    largest = std::max(largest, std::abs(value));
    squares += value * value;
  }
  return {largest, std::sqrt(squares / static_cast<double>(values.size()))};
}

struct Case {
  std::function<void(const init::Target&)> fill;
  /// 0 for a normal distribution.
  double bound;
  double deviation;
};

/// PyTorch's formulas for a weight [60, 10, 3]: 30 inputs, 180 outputs.
std::vector<Case> cases() {
  using namespace init;
  const double slope = 2 / (1 + 0.5 * 0.5);
  return {
      {[](const Target& to) { uniform_(to, -2, 2); }, 2, 2 / std::sqrt(3)},
      {[](const Target& to) { normal_(to, 0, 0.3); }, 0, 0.3},
      {[](const Target& to) { xavier_uniform_(to, 2); }, 2 * std::sqrt(6.0 / 210), 0},
      {[](const Target& to) { xavier_normal_(to); }, 0, std::sqrt(2.0 / 210)},
      {[](const Target& to) { kaiming_uniform_(to, 0.5); }, std::sqrt(3 * slope / 30), 0},
      {[](const Target& to) { kaiming_normal_(to, 0, "fan_out", "relu"); }, 0,
       std::sqrt(2.0 / 180)},
  };
}

TEST(Init, FollowsPyTorchsFormulas) {
  for (const Case& one : cases()) {
    manual_seed(3);
    const Tensor weight = empty({60, 10, 3});
    one.fill(weight);
    const auto [largest, deviation] = spread_of(weight);
    const double expected = one.bound > 0 ? one.bound / std::sqrt(3) : one.deviation;
    EXPECT_NEAR(deviation, expected, 0.05 * expected);
    EXPECT_LE(largest, one.bound > 0 ? one.bound : 6 * one.deviation);
  }
}

/// Ranks without rows are among them.
TEST(Init, GivesTheSameBitsForAnyLayoutNowAndLater) {
  for (const Case& one : cases()) {
    manual_seed(3);
    const Tensor whole = empty({2, 10, 3});
    one.fill(whole);
    on_mesh({{"dp", 3}}, [&](const DeviceMesh& mesh) {
      manual_seed(3);
      const Tensor cut = empty({2, 10, 3}, {.sharding = Sharding(mesh, {Shard(0)})});
      one.fill(cut);
      EXPECT_EQ(cut.full_tensor().to_vector<float>(), whole.to_vector<float>());
      manual_seed(3);
      const auto later = std::make_shared<Parameter>(Shape{2, 10, 3}, f32, constant_values(0));
      one.fill(later);
      EXPECT_FALSE(later->is_materialized());
      later->materialize(cpu);
      EXPECT_EQ(later->value().to_vector<float>(), whole.to_vector<float>());
      init::ones_(later);
      EXPECT_EQ(later->value().to_vector<float>(), std::vector<float>(60, 1));
    });
  }
}

TEST(Init, RefusesWhatHasNoFans) {
  const Tensor vector = empty({3}), matrix = empty({3, 2});
  EXPECT_EQ(error_of([&] { init::xavier_normal_(vector); }),
            "xavier_normal_: shape is [3], expected at least 2 dims");
  EXPECT_EQ(error_of([&] { init::kaiming_normal_(matrix, 0, "fan"); }),
            "kaiming_normal_: mode is \"fan\", expected fan_in or fan_out");
  EXPECT_EQ(error_of([&] { init::calculate_gain("swish"); }),
            "calculate_gain: nonlinearity is \"swish\", expected one of linear, sigmoid, tanh, "
            "relu, leaky_relu");
  EXPECT_DOUBLE_EQ(init::calculate_gain("tanh"), 5.0 / 3);
  EXPECT_DOUBLE_EQ(init::calculate_gain("leaky_relu"), std::sqrt(2 / 1.0001));
}

}  // namespace
}  // namespace weft
