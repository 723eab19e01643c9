// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/networks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/ops.h"

namespace weft {
namespace {

Tensor values(const std::vector<double>& numbers, const Shape& shape) {
  return from_values(numbers, shape, {.dtype = f64});
}

TEST(Losses, MseOfKnownNumbers) {
  const Tensor x = values({1, 2, 3, 4, 5, 6}, {2, 3}), y = values({1, 0, 6, 4, 4, 6}, {2, 3});
  EXPECT_DOUBLE_EQ(mse_loss(x, y).item(), 14.0 / 6);
  EXPECT_DOUBLE_EQ(mse_loss(x, y, "sum").item(), 14);
  EXPECT_EQ(mse_loss(x, y, "none").to_vector<double>(), (std::vector<double>{0, 4, 9, 0, 1, 0}));
  EXPECT_EQ(error_of([&] { mse_loss(x, y, "most"); }),
            "mse_loss: reduction is \"most\", expected mean, sum or none");
  EXPECT_EQ(error_of([&] {
              mse_loss(x, values({1, 2, 3}, {3}));
            }),
            "mse_loss: target is [3], expected [2, 3], the shape of input");
}

/// Uneven parts, empty ones, and a Partial.
TEST(Losses, MseIsTheSameInAnyLayout) {
  for (const int ranks : {1, 3, 4}) {
    on_mesh({{"dp", ranks}}, [](const DeviceMesh& mesh) {
      const Tensor x = numbers({2, 5}), y = numbers({2, 5}, 3);
      const double expected = mse_loss(x, y).item();
      for (const Placements& placements : {Placements{Shard(0)}, {Shard(1)}, {Replicate()}}) {
        const Tensor cut = distribute(x, mesh, placements);
        EXPECT_NEAR(mse_loss(cut, distribute(y, mesh, {Shard(1)})).full_tensor().item(), expected,
                    1e-6 * expected);
      }
    });
  }
}

TEST(Losses, GeluByTanhIsPyTorchs) {
  const std::vector<double> x = {-3, -1, -0.5, 0, 0.5, 1, 3};
  const std::vector<double> y = gelu(values(x, {7}), "tanh").to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) {
    const double inner = std::sqrt(2 / M_PI) * (x[i] + 0.044715 * std::pow(x[i], 3));
    EXPECT_NEAR(y[i], 0.5 * x[i] * (1 + std::tanh(inner)), 1e-14);
  }
  EXPECT_EQ(gelu(values(x, {7}), "none").to_vector<double>(),
            gelu(values(x, {7})).to_vector<double>());
  EXPECT_EQ(error_of([&] { gelu(values(x, {7}), "erf"); }),
            "gelu: approximate is \"erf\", expected none or tanh");
}

TEST(Losses, NormsWithoutWeights) {
  on_mesh({{"dp", 3}}, [](const DeviceMesh& mesh) {
    const Tensor x = numbers({4, 5}), one = ones({5}), zero = zeros({5});
    const Tensor cut = distribute(x, mesh, {Shard(0)});
    EXPECT_EQ(layer_norm(cut).full_tensor().to_vector<float>(),
              layer_norm(x, one, zero).to_vector<float>());
    EXPECT_EQ(layer_norm(cut, distribute(one, mesh, {})).full_tensor().to_vector<float>(),
              layer_norm(x, one, zero).to_vector<float>());
    EXPECT_EQ(rms_norm(cut).full_tensor().to_vector<float>(), rms_norm(x, one).to_vector<float>());
  });
}

}  // namespace
}  // namespace weft
