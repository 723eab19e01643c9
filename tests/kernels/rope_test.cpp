// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope/rope.h"

#include <gtest/gtest.h>

#include "tests/kernels/array.h"

namespace weft {
namespace {

/// Hugging Face's formula: x * cos + rotate_half(x) * sin, angles repeated in both halves.
double turned(const Array& x, int64_t row, int64_t n, int64_t i, int64_t position, double theta) {
  const int64_t half = n / 2, pair = i % half;
  const double frequency =
      1 / std::pow(theta, 2.0 * static_cast<double>(pair) / static_cast<double>(n));
  const double angle = static_cast<double>(position) * frequency;
  const double rotated = i < half ? -x[row * n + i + half] : x[row * n + i - half];
  return x[row * n + i] * std::cos(angle) + rotated * std::sin(angle);
}

TEST(Rope, EqualsTheFormula) {
  for (DType dtype : {f32, bf16, f64}) {
    for (Lie lie : {Lie::dense, Lie::transposed, Lie::gaps}) {
      for (int dim : {1, 2}) {
        for (int64_t offset : {0, 3, 100}) {
          const Array x = Array::random(dtype, {2, 5, 7, 16}, lie), y(dtype, {2, 5, 7, 16});
          rope(y.block, x.block, dim, {500, offset, false});
          std::vector<double> expected = x.values();
          for (int64_t row = 0; row < 70; ++row) {
            const int64_t position = offset + (dim == 1 ? row / 7 % 5 : row % 7);
            for (int64_t i = 0; i < 16; ++i) {
              expected[static_cast<size_t>(row * 16 + i)] = turned(x, row, 16, i, position, 500);
            }
          }
          // Angles are f32: an error of position * 2^-24.
          expect_near(y.values(), expected, std::max(rounding(dtype), 2e-5));
        }
      }
    }
  }
}

TEST(Rope, TurnsBackInPlace) {
  const Array x = Array::random(f32, {40, 3, 64});
  const std::vector<double> before = x.values();
  rope(x.block, x.block, 0, {10000, 11, false});
  EXPECT_NE(x.values(), before);
  rope(x.block, x.block, 0, {10000, 11, true});
  expect_near(x.values(), before, 1e-6);
}

TEST(Rope, PositionsAreThoseOfTheWhole) {
  const Array x = Array::random(f32, {12, 8}), y(f32, {12, 8}), part(f32, {5, 8});
  rope(y.block, x.block, 0, {});
  rope(part.block, x.block.part({{7, 0}, {5, 8}}), 0, {10000, 7, false});
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(part[i], y[56 + i]);
}

TEST(Rope, RefusesWhatHasNoPairs) {
  const Array odd(f32, {4, 7}), flat(f32, {8}), none(f32, {0, 8});
  EXPECT_THROW(rope(odd.block, odd.block, 0, {}), std::invalid_argument);
  const Array even(f32, {2, 3, 8}), few(i64, {2});
  EXPECT_THROW(rope(even.block, even.block, 1, {}, nullptr, &few.block), std::invalid_argument);
  EXPECT_THROW(rope(flat.block, flat.block, 0, {}), std::invalid_argument);
  rope(none.block, none.block, 0, {});
}

}  // namespace
}  // namespace weft
