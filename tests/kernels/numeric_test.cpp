// SPDX-License-Identifier: Apache-2.0
#include "src/base/numeric.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "src/kernels/iteration/iteration.h"

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Decodes a float16 arithmetically from sign, exponent and fraction.
double half_value(uint32_t bits) {
  const double sign = bits & 0x8000u ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 31u);
  const double fraction = bits & 0x3ffu;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Numeric, EveryHalfGoesToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const double exact = half_value(bits);
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(half)));
      EXPECT_TRUE(std::isnan(static_cast<float>(float16(static_cast<float>(half)))));
    } else {
      ASSERT_EQ(static_cast<double>(static_cast<float>(half)), exact) << bits;
      ASSERT_EQ(float16(static_cast<float>(half)).bits, bits);
    }
    bfloat16 brain;
    brain.bits = static_cast<uint16_t>(bits);
    const auto wide = static_cast<float>(brain);
    ASSERT_EQ(std::bit_cast<uint32_t>(wide), bits << 16);
    if (!std::isnan(wide)) {
      ASSERT_EQ(bfloat16(wide).bits, bits);
    }
  }
}

TEST(Numeric, HalfRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bffu; ++bits) {
    const double low = half_value(bits), high = half_value(bits + 1), middle = (low + high) / 2;
    const auto even = static_cast<uint16_t>(bits + (bits & 1u));
    const auto at = static_cast<float>(middle);
    ASSERT_EQ(float16(at).bits, even) << bits;
    ASSERT_EQ(float16(std::nextafter(at, 0.0f)).bits, bits);
    ASSERT_EQ(float16(std::nextafter(at, 1e9f)).bits, bits + 1);
    ASSERT_EQ(float16(-at).bits, even | 0x8000u);
  }
  EXPECT_EQ(float16(65519.0f).bits, 0x7bffu);
  EXPECT_EQ(float16(65520.0f).bits, 0x7c00u);
  EXPECT_EQ(float16(1e30f).bits, 0x7c00u);
  EXPECT_EQ(float16(0x1p-26f).bits, 0u);
}

TEST(Numeric, BrainRoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(bfloat16(1.00390625f).bits, 0x3f80u);  // halfway: to even
  EXPECT_EQ(bfloat16(1.01171875f).bits, 0x3f82u);
  EXPECT_EQ(bfloat16(0x1.010002p0f).bits, 0x3f81u);
  EXPECT_EQ(bfloat16(3.4e38f).bits, 0x7f80u);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Numeric, LinesConvertAsTheScalarsDo) {
  std::vector<float> values, back;
  std::vector<float16> halves;
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 60013) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  const auto n = static_cast<int64_t>(values.size());
  halves.resize(values.size());
  back.resize(values.size());
  convert_line({f16, halves.data()}, {f32, values.data()}, n);
  convert_line({f32, back.data()}, {f16, halves.data()}, n);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(back[i]));
    } else {
      ASSERT_EQ(halves[i].bits, float16(values[i]).bits) << values[i];
      ASSERT_EQ(back[i], static_cast<float>(halves[i]));
    }
  }
}

TEST(Numeric, HalvesOfWiderNumbersAreRoundedOnce) {
  const double values[] = {1 + 0x1p-11 + 0x1p-40,
                           -(1 + 0x1p-11 + 0x1p-40),
                           1 + 0x1p-11,
                           65519.999999999,
                           1e300,
                           -1e-300};
  // Just above the midpoint of two halves, the midpoint itself (to even), too large, almost zero.
  const float expected[] = {1 + 0x1p-10f, -(1 + 0x1p-10f), 1, 65504, kInfinity, -0.0f};
  float16 halves[6];
  convert_line({f16, halves}, {f64, const_cast<double*>(values)}, 6);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(static_cast<float>(halves[i]), expected[i]) << values[i];

  const int64_t integers[] = {(int64_t{1} << 40) + (int64_t{1} << 32) + 1,
                              -(int64_t{1} << 62) - (int64_t{1} << 54) - 1, 1 << 20};
  const float nearest[] = {0x1.02p40f, -0x1.02p62f, 0x1p20f};
  bfloat16 rounded[3];
  convert_line({bf16, rounded}, {i64, const_cast<int64_t*>(integers)}, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(static_cast<float>(rounded[i]), nearest[i]) << integers[i];
}

TEST(Numeric, VisitGivesTheTypeOfTheDtype) {
  for (DType dtype : {f32, bf16, f16, f64, i32, i64, u8, boolean}) {
    EXPECT_EQ(visit(dtype, [](auto type) { return dtype_of<typename decltype(type)::type>; }),
              dtype);
    EXPECT_EQ(visit(dtype, [](auto type) { return sizeof(typename decltype(type)::type); }),
              size_of(dtype));
    EXPECT_EQ(
        visit(dtype, [](auto type) { return dtype_of<Compute<typename decltype(type)::type>>; }),
        compute_dtype(dtype));
  }
  EXPECT_THROW(visit_floating("softmax", i32, [](auto) {}), std::invalid_argument);
}

}  // namespace
}  // namespace weft
