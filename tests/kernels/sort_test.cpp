// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/kernels/array.h"

namespace weft {
namespace {

TEST(Sort, OrdersRowsAndKeepsTies) {
  for (DType dtype : {f32, bf16, i64, u8}) {
    for (bool descending : {false, true}) {
      for (int64_t k : {0, 1, 7, 50}) {
        const Array in = Array::random(dtype, {6, 50}, Lie::gaps, 1, 0, 20);
        const Array values(dtype, {6, k}), indices(i64, {6, k}, Lie::transposed);
        sort_rows(&values.block, indices.block, in.block, descending, 100);
        for (int64_t r = 0; r < 6; ++r) {
          std::vector<int64_t> order(50);
          for (size_t i = 0; i < 50; ++i) order[i] = static_cast<int64_t>(i);
          std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
            return descending ? in[r * 50 + a] > in[r * 50 + b] : in[r * 50 + a] < in[r * 50 + b];
          });
          for (int64_t i = 0; i < k; ++i) {
            ASSERT_EQ(indices[r * k + i], order[static_cast<size_t>(i)] + 100);
            ASSERT_EQ(values[r * k + i], in[r * 50 + order[static_cast<size_t>(i)]]);
          }
        }
      }
    }
  }
}

TEST(Sort, GivesTheIndicesAlone) {
  for (Lie lie : {Lie::dense, Lie::transposed}) {
    for (bool descending : {false, true}) {
      const Array in = Array::random(f32, {6, 50}, lie, 1, 0, 20), values(f32, {6, 50});
      const Array both(i64, {6, 50}), alone(i64, {6, 50}, lie);
      sort_rows(&values.block, both.block, in.block, descending);
      sort_rows(nullptr, alone.block, in.block, descending);
      EXPECT_EQ(alone.values(), both.values());
    }
  }
}

TEST(Sort, NaNIsTheGreatest) {
  const Array in = Array::of(f32, {4}, {1, std::nan(""), 9, -2}), values(f32, {4}),
              indices(i32, {4});
  sort_rows(&values.block, indices.block, in.block);
  EXPECT_EQ(indices.values(), (std::vector<double>{3, 0, 2, 1}));
  sort_rows(&values.block, indices.block, in.block, true);
  EXPECT_EQ(indices.values(), (std::vector<double>{1, 2, 0, 3}));
}

TEST(Sort, LongRowsAreOrderedLikeShortOnes) {
  const double nan = std::nan(""), inf = INFINITY;
  const double special[] = {nan, -nan, inf, -inf, 0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 1, -1};
  for (int64_t n : {63, 64, 65, 1000}) {
    for (bool descending : {false, true}) {
      std::vector<double> values = Array::random(f32, {n}, Lie::dense, 4, -2, 2).values();
      for (size_t i = 0; i < values.size(); i += 2) values[i] = special[i / 2 % std::size(special)];
      const Array narrow = Array::of(f32, {n}, values), wide = Array::of(f64, {n}, values);
      const Array few(f32, {n / 3}), indices(i64, {n}), expected(i64, {n}), first(i64, {n / 3});
      sort_rows(nullptr, indices.block, narrow.block, descending);
      sort_rows(nullptr, expected.block, wide.block, descending);
      EXPECT_EQ(indices.values(), expected.values());
      sort_rows(&few.block, first.block, narrow.block, descending);
      for (int64_t i = 0; i < n / 3; ++i) ASSERT_EQ(first[i], expected[i]);
    }
  }
}

TEST(Sort, RefusesMoreThanThereIs) {
  const Array in(f32, {2, 3}), values(f32, {2, 4}), indices(i64, {2, 4}), few(i64, {2, 3});
  EXPECT_THROW(sort_rows(&values.block, indices.block, in.block), std::invalid_argument);
  EXPECT_THROW(sort_rows(&in.block, indices.block, in.block), std::invalid_argument);
}

TEST(Sort, SelectsAndSortsLongRowsOfAllDtypes) {
  for (DType dtype : {f32, bf16, f64, i64, i8, u16}) {
    const double low = is_unsigned(dtype) ? 0 : -100,
                 high = dtype == f64 || dtype == i64 ? 1e15 : 120;
    for (int64_t n : {1, 63, 64, 700, 5000}) {
      const Array in = Array::random(dtype, {2, n}, Lie::gaps, 4, low, high);
      for (const int64_t k : {int64_t{1}, n / 9, n / 8, n / 2, n}) {
        for (bool descending : {false, true}) {
          const Array values(dtype, {2, k}), indices(i64, {2, k});
          sort_rows(&values.block, indices.block, in.block, descending);
          for (int64_t r = 0; r < 2; ++r) {
            std::vector<int64_t> order(static_cast<size_t>(n));
            std::iota(order.begin(), order.end(), int64_t{0});
            std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
              return descending ? in[r * n + a] > in[r * n + b] : in[r * n + a] < in[r * n + b];
            });
            for (int64_t i = 0; i < k; ++i) {
              ASSERT_EQ(indices[r * k + i], order[static_cast<size_t>(i)]) << n << ' ' << k;
              ASSERT_EQ(values[r * k + i], in[r * n + order[static_cast<size_t>(i)]]);
            }
          }
        }
      }
    }
  }
}

TEST(Sort, SelectsNaNAsTheGreatest) {
  std::vector<double> row(1000, 1);
  row[3] = row[990] = std::nan("");
  row[500] = INFINITY;
  for (DType dtype : {f32, f64}) {
    const Array in = Array::of(dtype, {1000}, row), values(dtype, {4}), indices(i64, {4});
    sort_rows(&values.block, indices.block, in.block, true);
    EXPECT_EQ(indices.values(), (std::vector<double>{3, 990, 500, 0}));
  }
}

}  // namespace
}  // namespace weft
