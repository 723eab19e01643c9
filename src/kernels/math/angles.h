// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "src/kernels/math/math.h"

namespace weft {

// Sine, cosine and tangent of any float, however large, without branches. Those of math.h are
// faster but only accurate up to 10^6.
#define WEFT_MATH [[gnu::always_inline]] WEFT_FN inline

/// The bits of 2 / pi that matter for floats of one exponent. The product with `high`, plus the
/// upper 32 bits of that with `low`, modulo 2^64, is the angle in quadrants with 62 fraction bits.
struct QuadrantBits {
  uint64_t high, low;
};

/// Indexed by biased exponent, starting at 126 (0.5).
inline constexpr int kFirstQuadrantExponent = 126, kQuadrantExponents = 129;

constexpr std::array<QuadrantBits, kQuadrantExponents> quadrant_bits() {
  // The bits of 2 / pi after the binary point.
  constexpr uint32_t kWords[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};
  const auto bit = [&](int position) -> uint64_t {
    if (position < 1) return 0;
    return kWords[(position - 1) / 32] >> (31 - (position - 1) % 32) & 1u;
  };
  std::array<QuadrantBits, kQuadrantExponents> table{};
  for (int i = 0; i < kQuadrantExponents; ++i) {
    const int last = i + kFirstQuadrantExponent - 150 + 62;
    for (int k = last - 63; k <= last; ++k) table[i].high = table[i].high << 1 | bit(k);
    for (int k = last + 1; k <= last + 32; ++k) table[i].low = table[i].low << 1 | bit(k);
  }
  return table;
}

inline constexpr std::array<QuadrantBits, kQuadrantExponents> kQuadrantBits = quadrant_bits();
#ifdef __CUDACC__
static __device__ constexpr std::array<QuadrantBits, kQuadrantExponents> kQuadrantBitsThere =
    quadrant_bits();
#endif

WEFT_MATH QuadrantBits quadrant_bits_of(size_t exponent) {
#ifdef __CUDA_ARCH__
  return kQuadrantBitsThere[exponent];
#else
  return kQuadrantBits[exponent];
#endif
}

/// Returns `yes` when `which` holds, else `no`. Uses bit masks, because the compiler turns a
/// conditional into a branch around the table lookup above, and the loop then does not vectorise.
WEFT_MATH uint32_t chosen(bool which, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(which);
  return (yes & mask) | (no & ~mask);
}

/// x - n * pi / 2 and n modulo 4, by the method of Payne and Hanek (1983); NaN for infinities.
WEFT_MATH Quadrant quadrant_of_any(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  const int32_t exponent = static_cast<int32_t>(magnitude >> 23) - kFirstQuadrantExponent;
  const int32_t low = exponent < 0 ? 0 : exponent;
  const auto at = static_cast<size_t>(low < kQuadrantExponents ? low : kQuadrantExponents - 1);
  const uint64_t m = (magnitude & 0x007fffffu) | 0x00800000u;
  const QuadrantBits factor = quadrant_bits_of(at);
  const uint64_t quadrants = m * factor.high + (m * factor.low >> 32);
  const uint64_t n = (quadrants + (uint64_t{1} << 61)) >> 62;
  const auto fraction = static_cast<int64_t>(quadrants - (n << 62));
  const auto wide = static_cast<float>(static_cast<double>(fraction) * 0x1.921fb54442d18p-62);
  const uint32_t sign = bits & 0x80000000u, turns = static_cast<uint32_t>(n);
  const bool small = magnitude < 0x3f490fdbu;  // pi / 4
  const uint32_t r = chosen(small, bits, std::bit_cast<uint32_t>(wide) ^ sign);
  const uint32_t known = chosen(magnitude < 0x7f800000u, r, 0x7fc00000u);
  return {std::bit_cast<float>(known), chosen(small, 0u, chosen(sign != 0, 0u - turns, turns))};
}

/// Returns `value`, but x itself when x is 0, to keep the sign of zero.
WEFT_MATH float with_zero_of(float x, float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>(chosen(bits << 1 == 0, bits, std::bit_cast<uint32_t>(value)));
}

/// 2 ulp; NaN for infinities.
WEFT_MATH float sine(float x) {
  const Quadrant q = quadrant_of_any(x);
  return with_zero_of(x, sine_in_quadrant(q.r, q.n));
}
WEFT_MATH double sine(double x) { return ::sin(x); }

/// 2 ulp; NaN for infinities.
WEFT_MATH float cosine(float x) {
  const Quadrant q = quadrant_of_any(x);
  return sine_in_quadrant(q.r, q.n + 1);
}
WEFT_MATH double cosine(double x) { return ::cos(x); }

/// 4 ulp; NaN for infinities.
WEFT_MATH float tangent(float x) {
  const Quadrant q = quadrant_of_any(x);
  return with_zero_of(x, sine_in_quadrant(q.r, q.n) / sine_in_quadrant(q.r, q.n + 1));
}
WEFT_MATH double tangent(double x) { return ::tan(x); }

#undef WEFT_MATH

}  // namespace weft
