// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/array.h"

namespace weft {
namespace {

/// NaN is the greatest.
bool is_less(double a, double b) { return a < b || (a == a && b != b); }

TEST(Search, FindsTheFirstOrLastPlaceOfEachValue) {
  for (DType dtype : {f32, bf16, f64, i64, u8}) {
    for (int64_t n : {0, 1, 2, 3, 63, 64, 1000}) {
      Array sorted = Array::random(dtype, {n}, Lie::dense, 1, 0, 40);
      std::vector<double> row = sorted.values();
      if (is_floating(dtype) && n > 2) row[1] = std::nan("");
      std::sort(row.begin(), row.end(), is_less);
      sorted.set(row);
      Array values = Array::random(dtype, {7, 33}, Lie::gaps, 2, 0, 45);
      std::vector<double> wanted = values.values();
      if (is_floating(dtype)) wanted[5] = std::nan(""), wanted[6] = INFINITY;
      values.set(wanted);
      for (bool right : {false, true}) {
        const Array places(i64, {7, 33}, Lie::transposed);
        search_sorted(places.block, sorted.block, values.block, right);
        for (size_t i = 0; i < wanted.size(); ++i) {
          const auto found = right ? std::upper_bound(row.begin(), row.end(), wanted[i], is_less)
                                   : std::lower_bound(row.begin(), row.end(), wanted[i], is_less);
          ASSERT_EQ(places[static_cast<int64_t>(i)], static_cast<double>(found - row.begin()));
        }
      }
    }
  }
}

TEST(Search, EachRowOfValuesHasItsOwnSortedRow) {
  const Array sorted = Array::of(f32, {2, 3}, {1, 2, 3, 10, 20, 30}),
              values = Array::of(f32, {2, 4}, {0, 2, 3, 9, 0, 10, 25, 99}), places(i64, {2, 4});
  search_sorted(places.block, sorted.block, values.block, true);
  EXPECT_EQ(places.values(), (std::vector<double>{0, 2, 3, 3, 0, 1, 2, 3}));
}

TEST(Search, ListsThePlacesWhereAMaskHolds) {
  for (int64_t n : {0, 1, 7, 1023, 1024, 1025, 65536, 200001}) {
    for (double share : {0.0, 0.3, 1.0}) {
      const Array draws = Array::random(f64, {n}, Lie::dense, 3, 0, 1);
      std::vector<double> expected;
      std::vector<double> holds = draws.values();
      for (int64_t i = 0; i < n; ++i) {
        double& one = holds[static_cast<size_t>(i)];
        one = one < share;
        if (one != 0) expected.push_back(static_cast<double>(i));
      }
      const Array made = Array::of(boolean, {n}, holds);
      const Array places(i64, {static_cast<int64_t>(expected.size())});
      true_places(places.block, made.block);
      ASSERT_EQ(places.values(), expected) << n << " at " << share;
    }
  }
}

}  // namespace
}  // namespace weft
