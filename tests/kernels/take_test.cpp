// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/take/take.h"

#include <gtest/gtest.h>

#include "tests/kernels/array.h"

namespace weft {
namespace {

/// Row-major position of (o, i, k) in [.., n, inner].
int64_t at(int64_t o, int64_t i, int64_t k, int64_t n, int64_t inner) {
  return (o * n + i) * inner + k;
}

/// Takes 7 of a dim of 5 in [outer, 5, inner]: slices of it, or elements.
struct Case {
  int64_t outer, inner;
  bool slices;
};
constexpr int64_t kSize = 5, kTaken = 7;

constexpr Case kCases[] = {{1, 1, true},  {3, 1, true},   {3, 6, true},    {1, 700, true},
                           {3, 1, false}, {2, 6, false},  {2, 300, false}, {0, 4, true},
                           {4, 0, false}, {70, 300, true}};

Array random_indices(const Case& c, DType dtype) {
  const Shape shape = c.slices ? Shape{kTaken} : Shape{c.outer, kTaken, c.inner};
  Array array(dtype, shape);
  std::vector<double> values = Array::random(f64, shape, Lie::dense, 9, -5, 5).values();
  for (double& value : values) value = std::floor(value);
  array.set(values);
  return array;
}

int64_t index_of(const Case& c, const Array& indices, int64_t o, int64_t i, int64_t k) {
  const auto index = static_cast<int64_t>(indices[c.slices ? i : at(o, i, k, kTaken, c.inner)]);
  return index < 0 ? index + kSize : index;
}

TEST(Take, TakesSlicesAndElements) {
  for (const Case& c : kCases) {
    for (DType dtype : {f32, bf16, f64, u8, boolean}) {
      const Array in = Array::random(dtype, {c.outer, kSize, c.inner}, Lie::dense, 1, 0, 2);
      const Array out(dtype, {c.outer, kTaken, c.inner}), where = random_indices(c, i64);
      take_along(out.block, in.block, where.block, 1);
      for (int64_t o = 0; o < c.outer; ++o) {
        for (int64_t i = 0; i < kTaken; ++i) {
          for (int64_t k = 0; k < c.inner; ++k) {
            ASSERT_EQ(out[at(o, i, k, kTaken, c.inner)],
                      in[at(o, index_of(c, where, o, i, k), k, kSize, c.inner)]);
          }
        }
      }
    }
  }
}

TEST(Take, AddsUpWhatWasTaken) {
  for (const Case& c : kCases) {
    for (DType dtype : {f32, bf16, f64, i32}) {
      const Array in = Array::random(dtype, {c.outer, kTaken, c.inner});
      const Array out(dtype, {c.outer, kSize, c.inner}), where = random_indices(c, i32);
      write_along(out.block, in.block, where.block, 1, WriteMode::add);
      std::vector<double> expected(static_cast<size_t>(out.block.numel()));
      for (int64_t o = 0; o < c.outer; ++o) {
        for (int64_t i = 0; i < kTaken; ++i) {
          for (int64_t k = 0; k < c.inner; ++k) {
            expected[static_cast<size_t>(at(o, index_of(c, where, o, i, k), k, kSize, c.inner))] +=
                in[at(o, i, k, kTaken, c.inner)];
          }
        }
      }
      expect_near(out.values(), expected, rounding(dtype));
    }
  }
}

TEST(Take, RefusesWhatDoesNotFit) {
  const Array in(f32, {3, 4}), out(f32, {2, 4}), three(i64, {3}), wide(i64, {2, 3}), of(f32, {2});
  EXPECT_THROW(take_along(out.block, in.block, three.block, 0), std::invalid_argument);
  EXPECT_THROW(take_along(out.block, in.block, wide.block, 0), std::invalid_argument);
  EXPECT_THROW(take_along(out.block, in.block, of.block, 0), std::invalid_argument);
}

}  // namespace
}  // namespace weft
