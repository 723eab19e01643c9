// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/scan/scan.h"

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
        running_total(Running::sum, out.block, in.block, dim, reverse);
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

TEST(Scan, LongRowsAreSummedInOrder) {
  for (DType dtype : {f32, f64, i64, i32}) {
    for (int64_t rows : {1, 3, 4, 6, 9}) {
      for (int64_t n : {511, 512, 513, 1700}) {
        for (bool reverse : {false, true}) {
          const Array in = Array::random(dtype, {rows, n}, Lie::gaps),
                      start = Array::random(dtype, {rows, 1}, Lie::dense, 2), out(f64, {rows, n});
          running_total(Running::sum, out.block, in.block, 1, reverse, &start.block);
          for (int64_t r = 0; r < rows; ++r) {
            double sum = start[r];
            for (int64_t i = 0; i < n; ++i) {
              const int64_t at = r * n + (reverse ? n - 1 - i : i);
              sum += in[at];
              ASSERT_EQ(out[at], sum);
            }
          }
        }
      }
    }
  }
}

TEST(Scan, AdjacentRowsAreScannedTogether) {
  for (DType dtype : {f32, f64, i64, bf16}) {
    for (int64_t rows : {3, 6, 300}) {
      for (bool reverse : {false, true}) {
        const Array in = Array::random(dtype, {2, 9, rows}, Lie::gaps, 1, 0, 4);
        const Array start = Array::random(dtype, {2, 1, rows}, Lie::dense, 2, 0, 4);
        const Array out(f64, {2, 9, rows});
        running_total(Running::sum, out.block, in.block, 1, reverse, &start.block);
        for (int64_t r = 0; r < 2 * rows; ++r) {
          double sum = start[r];
          for (int64_t i = 0; i < 9; ++i) {
            const int64_t at = (r / rows * 9 + (reverse ? 8 - i : i)) * rows + r % rows;
            sum += in[at];
            ASSERT_NEAR(out[at], sum, 1e-5 * sum);
          }
        }
      }
    }
  }
}

TEST(Scan, GoesOnFromAStart) {
  const Array in = Array::of(i64, {2, 3}, {1, 2, 3, 4, 5, 6}),
              start = Array::of(i64, {2, 1}, {10, 20});
  running_total(Running::sum, in.block, in.block, 1, false, &start.block);
  EXPECT_EQ(in.values(), (std::vector<double>{11, 13, 16, 24, 29, 35}));
  const Array none(f32, {2, 0});
  running_total(Running::sum, none.block, none.block, 1);
}

TEST(Scan, Multiplies) {
  for (DType dtype : {f32, f64}) {
    for (Lie lie : {Lie::dense, Lie::transposed, Lie::gaps}) {
      const Array x = Array::random(dtype, {6, 2}, lie), scanned(dtype, {6, 2});
      running_total(Running::product, scanned.block, x.block, 0);
      std::vector<double> products = x.values();
      for (size_t i = 2; i < 12; ++i) products[i] *= products[i - 2];
      expect_near(scanned.values(), products, rounding(dtype));
    }
  }
}

TEST(Scan, LogSumExpDoesNotOverflow) {
  const double inf = HUGE_VAL;
  const Array in = Array::of(f64, {5}, {-inf, 1000, 1000, -inf, 1001}), out(f64, {5});
  running_total(Running::logsumexp, out.block, in.block, 0);
  const double two = 1000 + std::log(2.0);
  expect_near(out.values(), {-inf, 1000, two, two, 1000 + std::log(2 + std::exp(1.0))}, 1e-15);
  const Array start = Array::of(f64, {}, {1001});
  running_total(Running::logsumexp, out.block, in.block, 0, true, &start.block);
  EXPECT_NEAR(out[4], 1001 + std::log(2.0), 1e-12);
}

TEST(Scan, ExtremesHaveTheirLastIndex) {
  // Expected values are from torch.cummax and cummin.
  const double nan = std::nan("");
  const Array in = Array::of(f32, {7}, {1, 3, 3, 2, nan, 5, nan}), values(f32, {7}), at(i64, {7});
  cumulative_extreme(values.block, at.block, in.block, {.dim = 0, .greatest = true});
  EXPECT_EQ(at.values(), (std::vector<double>{0, 1, 2, 2, 4, 4, 6}));
  cumulative_extreme(values.block, at.block, in.block, {.dim = 0, .greatest = false});
  EXPECT_EQ(at.values(), (std::vector<double>{0, 0, 0, 0, 4, 4, 6}));
  const Array start = Array::of(f32, {}, {3}), index = Array::of(i64, {}, {8});
  cumulative_extreme(values.block, at.block, in.block,
                     {.dim = 0,
                      .greatest = true,
                      .offset = 10,
                      .start = &start.block,
                      .start_index = &index.block});
  EXPECT_EQ(at.values(), (std::vector<double>{8, 11, 12, 12, 14, 14, 16}));
  EXPECT_EQ(values[0], 3);
}

TEST(Scan, ProductsOfIntegersWrap) {
  const Array in = Array::of(i64, {3}, {0x1p40, 3, 0x1p24}), out(i64, {3});
  running_total(Running::product, out.block, in.block, 0);
  EXPECT_EQ(out.values(), (std::vector<double>{0x1p40, 3 * 0x1p40, 0}));
}

}  // namespace
}  // namespace weft
