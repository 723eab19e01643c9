// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/copy/copy.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/array.h"

namespace weft {
namespace {

constexpr DType kAll[] = {f32, bf16, f16, f64, i32, i64, u8, boolean};

double converted(double x, DType dtype) {
  if (dtype == boolean) return x != 0;
  if (is_floating(dtype)) return x;
  return std::trunc(x);
}

TEST(Copy, ConvertsEveryDtypeToEvery) {
  for (DType from : kAll) {
    for (DType to : kAll) {
      const Array in = Array::random(from, {3, 37}, Lie::gaps, 1, 0, 9);
      const Array out(to, {3, 37});
      copy(out.block, in.block);
      for (int64_t i = 0; i < 3 * 37; ++i) {
        const double bound = to == bf16 ? 0x1p-5 : to == f16 ? 0x1p-8 : to == f32 ? 0x1p-20 : 0;
        ASSERT_NEAR(out[i], converted(in[i], to), bound) << from << " to " << to;
      }
    }
  }
}

TEST(Copy, KeepsOrderForAnyStrides) {
  for (const Shape& shape : {Shape{}, Shape{1, 1}, Shape{9}, Shape{0}, Shape{130, 77},
                             Shape{3, 70, 9, 2}, Shape{5, 64, 64}, Shape{2, 40000}}) {
    for (DType dtype : {u8, bf16, i32, f64}) {
      for (Lie from : kLies) {
        for (Lie to : kLies) {
          const Array in = Array::random(dtype, shape, from, 1, 0, 200);
          const Array out(dtype, shape, to);
          copy(out.block, in.block);
          ASSERT_EQ(out.values(), in.values()) << dtype << shape;
        }
      }
    }
  }
}

TEST(Copy, BroadcastsAndReversesNothingElse) {
  const Array row = Array::random(f32, {1, 5}), out(f32, {4, 5});
  copy(out.block, row.block);
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(out[i], row[i % 5]);
  EXPECT_THROW(copy(row.block, out.block), std::invalid_argument);
}

TEST(Copy, FillsAndCounts) {
  for (DType dtype : kAll) {
    const Array out(dtype, {6, 5}, Lie::gaps);
    fill(out.block, 2);
    for (int64_t i = 0; i < 30; ++i) ASSERT_EQ(out[i], dtype == boolean ? 1 : 2) << dtype;
  }
  const Array infinite(bf16, {2});
  fill(infinite.block, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(infinite[1], -std::numeric_limits<double>::infinity());
  const Array half(boolean, {1});
  fill(half.block, 0.5);
  EXPECT_EQ(half[0], 1);
  for (const DType dtype : {f32, bf16, i64}) {
    const Array range(dtype, {3, 4}, Lie::gaps);
    fill_range(range.block, -3);
    for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(range[i], i - 3);
  }
}

TEST(Copy, Accumulates) {
  for (DType dtype : {f32, bf16, f64}) {
    const Array sum = Array::random(dtype, {9, 20}, Lie::transposed);
    const Array part = Array::random(f32, {20}, Lie::dense, 2);
    std::vector<double> expected = sum.values();
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] += 0.5 * part[static_cast<int64_t>(i % 20)];
    accumulate(sum.block, part.block, 0.5);
    expect_near(sum.values(), expected, rounding(dtype));
  }
  const Array count = Array::of(i32, {2}, {1, 2}), one = Array::of(i32, {2}, {1, 1});
  accumulate(count.block, one.block);
  EXPECT_EQ(count.values(), (std::vector<double>{2, 3}));
}

}  // namespace
}  // namespace weft
