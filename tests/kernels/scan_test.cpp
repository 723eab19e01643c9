// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/scan.h"

#include <gtest/gtest.h>

#include "tests/kernels/array.h"

namespace weft {
namespace {

TEST(Scan, SumsAlongAnyDimBothWays) {
  for (DType dtype : {f32, bf16, f64, i32}) {
    for (int dim : {0, 1, 2}) {
      for (bool reverse : {false, true}) {
        const Array in = Array::random(dtype, {4, 5, 6}, Lie::gaps),
                    out(dtype, {4, 5, 6}, Lie::transposed);
        cumulative_sum(out.block, in.block, dim, reverse);
        const int64_t n = in.block.shape[dim], step = dim == 0 ? 30 : dim == 1 ? 6 : 1;
        std::vector<double> expected = in.values();
        for (int64_t i = 0; i < 120; ++i) {
          double sum = 0;
          const int64_t at = i / step % n;
          for (int64_t j = 0; j < n; ++j) {
            if (reverse ? j >= at : j <= at) sum += in[i + (j - at) * step];
          }
          expected[static_cast<size_t>(i)] = sum;
        }
        expect_near(out.values(), expected, rounding(dtype));
      }
    }
  }
}

TEST(Scan, GoesOnFromAStart) {
  const Array in = Array::of(i64, {2, 3}, {1, 2, 3, 4, 5, 6}),
              start = Array::of(i64, {2, 1}, {10, 20});
  cumulative_sum(in.block, in.block, 1, false, &start.block);
  EXPECT_EQ(in.values(), (std::vector<double>{11, 13, 16, 24, 29, 35}));
  const Array none(f32, {2, 0});
  cumulative_sum(none.block, none.block, 1);
}

}  // namespace
}  // namespace weft
