// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/base/numeric.h"
#include "src/kernels/iteration/iteration.h"
#include "tests/kernels/array.h"

namespace weft {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A format of 8 bits, by arithmetic.
struct Format {
  int exponent_bits;
  bool has_infinity;

  int fraction_bits() const { return 7 - exponent_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }

  double value(uint32_t code) const {
    const double sign = code & 0x80u ? -1 : 1;
    const int fraction = static_cast<int>(code) & ((1 << fraction_bits()) - 1);
    const int exponent = static_cast<int>((code & 0x7fu) >> fraction_bits());
    const int all = (1 << exponent_bits) - 1, whole = 1 << fraction_bits();
    if (has_infinity && exponent == all) return fraction ? std::nan("") : sign * kInfinity;
    if (!has_infinity && (code & 0x7fu) == 0x7fu) return std::nan("");
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias() - fraction_bits());
    return sign * std::ldexp(whole + fraction, exponent - bias() - fraction_bits());
  }

  /// Codes from this one on are not finite.
  uint32_t end() const { return has_infinity ? 0x7c : 0x7f; }
  std::vector<double> finite_values() const {
    std::vector<double> values;
    for (uint32_t code = 0; code < end(); ++code) values.push_back(value(code));
    return values;
  }

  /// The code of the nearest of the finite values; ties to the even code.
  uint32_t nearest(const std::vector<double>& finite, double x) const {
    const uint32_t sign = std::signbit(x) ? 0x80u : 0u;
    if (std::isnan(x)) return sign | (has_infinity ? 0x7eu : 0x7fu);
    const double magnitude = std::abs(x);
    const auto above = std::upper_bound(finite.begin(), finite.end(), magnitude);
    const auto low = static_cast<uint32_t>(above - finite.begin()) - 1;
    // A value would follow the greatest one as far apart as that from the one before.
    const double next = low + 1 < end() ? finite[low + 1] : 2 * finite[low] - finite[low - 1];
    const double middle = (finite[low] + next) / 2;
    const bool up = magnitude > middle || (magnitude == middle && (low & 1u));
    return sign | (up ? low + 1 : low);
  }
};

constexpr Format kE4M3{4, false}, kE5M2{5, true};

template <class Code> void expect_decoded(const Format& format) {
  for (uint32_t bits = 0; bits < 256; ++bits) {
    Code code;
    code.bits = static_cast<uint8_t>(bits);
    const double exact = format.value(bits);
    const auto value = static_cast<float>(code);
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(Code(value)))) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(value), exact) << bits;
      EXPECT_EQ(std::signbit(value), bits >= 128) << bits;
      EXPECT_EQ(Code(value).bits, bits);
    }
  }
}

TEST(Float8, EveryCodeGoesToFloatAndBack) {
  expect_decoded<float8_e4m3>(kE4M3);
  expect_decoded<float8_e5m2>(kE5M2);
  EXPECT_EQ(kE4M3.value(0x7e), 448);
  EXPECT_EQ(kE5M2.value(0x7b), 57344);
}

template <class Code>
void expect_rounded(const Format& format, const std::vector<double>& finite, float x) {
  ASSERT_EQ(Code(x).bits, format.nearest(finite, static_cast<double>(x))) << x;
  ASSERT_EQ(Code(-x).bits, format.nearest(finite, -static_cast<double>(x))) << -x;
}

template <class Code> void expect_all_rounded(const Format& format) {
  const std::vector<double> finite = format.finite_values();
  // 2^20 patterns of all signs and exponents, NaN and infinity included.
  for (uint32_t i = 0; i < 1u << 20; ++i) {
    const auto x = std::bit_cast<float>(i << 12 | (i * 2654435761u) >> 20);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(Code(x))));
    } else {
      expect_rounded<Code>(format, finite, x);
    }
  }
  for (uint32_t code = 0; code < 0x7b; ++code) {
    const auto middle = static_cast<float>((format.value(code) + format.value(code + 1)) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      expect_rounded<Code>(format, finite, x);
    }
  }
}

TEST(Float8, RoundsToNearestEvenAndDoesNotSaturate) {
  expect_all_rounded<float8_e4m3>(kE4M3);
  expect_all_rounded<float8_e5m2>(kE5M2);
  EXPECT_EQ(float8_e4m3(464.0f).bits, 0x7eu);
  EXPECT_EQ(float8_e4m3(465.0f).bits, 0x7fu);
  EXPECT_EQ(float8_e4m3(std::numeric_limits<float>::infinity()).bits, 0x7fu);
  EXPECT_EQ(float8_e5m2(61439.0f).bits, 0x7bu);
  EXPECT_EQ(float8_e5m2(61440.0f).bits, 0x7cu);
}

/// A double next to a tie must not become the tie first.
TEST(Float8, RoundsDoublesOnce) {
  const double above = 1.0625 + 0x1p-40, below = 1.1875 - 0x1p-40;
  const Array in = Array::of(f64, {4}, {above, below, -above, 1e300}), out(f8_e4m3, {4});
  line_converter(f8_e4m3, f64)(out.at(0), 1, in.at(0), 1, 4);
  EXPECT_EQ(out.values()[0], 1.125);
  EXPECT_EQ(out.values()[1], 1.125);
  EXPECT_EQ(out.values()[2], -1.125);
  EXPECT_TRUE(std::isnan(out.values()[3]));
}

TEST(Float8, ConvertsFromAndToEveryDtype) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto other = static_cast<DType>(i);
    if (is_complex(other)) continue;
    for (const DType float8 : {f8_e4m3, f8_e5m2}) {
      const std::vector<double> values =
          other == boolean ? std::vector<double>{0, 1, 1, 0} : std::vector<double>{0, 1, 6, 24};
      const Array in = Array::of(other, {4}, values), out(float8, {4}), back(other, {4});
      line_converter(float8, other)(out.at(0), 1, in.at(0), 1, 4);
      line_converter(other, float8)(back.at(0), 1, out.at(0), 1, 4);
      EXPECT_EQ(out.values(), values) << other;
      EXPECT_EQ(back.values(), values) << other;
    }
  }
}

}  // namespace
}  // namespace weft
