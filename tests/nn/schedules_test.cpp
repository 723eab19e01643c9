// SPDX-License-Identifier: Apache-2.0
#include "weft/optimizers.h"

#include <gtest/gtest.h>

#include "tests/support/scratch.h"

namespace weft {

TEST(Schedules, WarmsUpAndFallsToTheFloor) {
  const WarmupCosine rate{.peak = 2, .warmup = 4, .total = 12, .floor = 0.5};
  const std::pair<int64_t, double> table[] = {
      {0, 0.5},  {1, 1},      {2, 1.5},
      {3, 2},    {4, 2},      {8, 1.25},
      {12, 0.5}, {1000, 0.5}, {6, 0.5 + 1.5 * (0.5 + 0.5 * 0.70710678118654752)}};
  for (const auto& [step, expected] : table) EXPECT_NEAR(rate(step), expected, 1e-12) << step;
}

TEST(Schedules, NeedsNoWarmUpAndNoFall) {
  EXPECT_EQ((WarmupCosine{.peak = 3, .total = 10}(0)), 3);
  EXPECT_EQ((WarmupCosine{.peak = 3, .warmup = 2, .total = 2, .floor = 1}(1)), 3);
  EXPECT_EQ((WarmupCosine{.peak = 3, .warmup = 2, .total = 2, .floor = 1}(2)), 1);
}

TEST(Schedules, RefusesWhatCannotBe) {
  EXPECT_EQ(error_of([] { WarmupCosine{.warmup = 5, .total = 4}(0); }),
            "warm-up and cosine: warmup is 5, expected 0 to 4 steps");
  EXPECT_EQ(error_of([] { WarmupCosine{.total = 4}(-1); }),
            "warm-up and cosine: step must be at least 0, got -1");
}

}  // namespace weft
