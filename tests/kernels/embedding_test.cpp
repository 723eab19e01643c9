// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding/embedding.h"

#include <gtest/gtest.h>

#include "src/kernels/take/take.h"
#include "tests/kernels/array.h"
#include "tests/kernels/threads.h"

namespace weft {
namespace {

const std::vector<double> kIds = {4, 9, 4, 0, 13, 7, 9, 4};

TEST(Embedding, GathersRowsAndZeros) {
  for (DType dtype : {f32, bf16, f64}) {
    for (Lie lie : {Lie::dense, Lie::transposed, Lie::gaps}) {
      const Array table = Array::random(dtype, {6, 33}, lie);  // rows 4 .. 9 of a larger table
      const Array ids = Array::of(i32, {2, 4}, kIds);
      const Array out(f32, {2, 4, 33}, lie);
      gather_rows(out.block, table.block, ids.block, 4);
      for (int64_t r = 0; r < 8; ++r) {
        const auto row = static_cast<int64_t>(kIds[static_cast<size_t>(r)]) - 4;
        for (int64_t i = 0; i < 33; ++i) {
          const double expected = row >= 0 && row < 6 ? table[row * 33 + i] : 0;
          ASSERT_EQ(out[r * 33 + i], static_cast<float>(expected));
        }
      }
    }
  }
}

TEST(Embedding, AddsRowsWhereTheyCameFrom) {
  for (DType dtype : {f32, bf16, f64}) {
    for (Lie lie : {Lie::dense, Lie::gaps}) {
      for (bool accumulates : {false, true}) {
        const Array table = Array::random(dtype, {6, 33}, lie),
                    rows = Array::random(dtype, {2, 4, 33}, lie, 2);
        const Array ids = Array::of(i64, {2, 4}, kIds);
        std::vector<double> expected = table.values();
        if (!accumulates) expected.assign(expected.size(), 0);
        for (int64_t r = 0; r < 8; ++r) {
          const auto id = static_cast<int64_t>(kIds[static_cast<size_t>(r)]);
          if (id < 4 || id >= 10) continue;
          for (int64_t i = 0; i < 33; ++i)
            expected[static_cast<size_t>((id - 4) * 33 + i)] += rows[r * 33 + i];
        }
        scatter_add_rows(table.block, rows.block, ids.block, 4, accumulates);
        expect_near(table.values(), expected, rounding(dtype));
      }
    }
  }
}

TEST(Embedding, BitsDoNotDependOnTheNumberOfThreads) {
  const Array rows = Array::random(f32, {5000, 100}), ids(i64, {5000});
  for (int64_t i = 0; i < 5000; ++i) ids.block.as<int64_t>()[i] = i * i % 17;
  expect_bits_for_any_threads([&] {
    const Array table(f32, {17, 100});
    scatter_add_rows(table.block, rows.block, ids.block);
    return table.values();
  });
}

TEST(Embedding, EmptyPartsAndRefusals) {
  const Array table(f32, {0, 3}), ids = Array::of(i32, {2}, {0, 1}),
                                  out = Array::random(f32, {2, 3});
  gather_rows(out.block, table.block, ids.block);
  EXPECT_EQ(out.values(), std::vector<double>(6, 0));
  scatter_add_rows(table.block, out.block, ids.block);
  const Array none(i32, {0}), nothing(f32, {0, 3}), other(f32, {4, 5});
  gather_rows(nothing.block, other.block.part({{0, 0}, {4, 3}}), none.block);
  EXPECT_THROW(gather_rows(out.block, other.block, ids.block), std::invalid_argument);
  EXPECT_THROW(gather_rows(out.block, table.block, none.block), std::invalid_argument);
}

TEST(Embedding, FindsWhatIsOutside) {
  const Array ids = Array::of(i64, {4}, {3, 0, -100, 9});
  EXPECT_EQ(find_outside(ids.block, 0, 10), -100);
  EXPECT_EQ(find_outside(ids.block, 0, 10, -100), std::nullopt);
  EXPECT_EQ(find_outside(ids.block, 0, 9, -100), 9);
}

}  // namespace
}  // namespace weft
