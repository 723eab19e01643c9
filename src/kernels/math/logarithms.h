// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/math/math.h"

namespace weft {

// Logarithms of other bases, powers, and functions accurate near 1 and 0; branch-free, as in
// src/kernels/math/math.h.
#define WEFT_MATH [[gnu::always_inline]] WEFT_FN inline

/// log2 of a positive finite number that is no denormal, to 2^-44 relative.
WEFT_MATH double log2_wide(double x) {
  const int64_t bits = std::bit_cast<int64_t>(x) - 0x3fe6a09e667f3bcd;
  const double m = std::bit_cast<double>((bits & 0x000fffffffffffff) + 0x3fe6a09e667f3bcd);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  const double p = polynomial(z, 0x1.21b0ef293ac89p-2, 0x1.479555d2347dfp-2, 0x1.a61a2eccc2c29p-2,
                              0x1.2776c2933984cp-1, 0x1.ec709dc53c6e0p-1, 0x1.71547652b8251p+1);
  return static_cast<double>(bits >> 52) + s * p;
}

/// 2^z, to 2^-34 relative, for |z| <= 1000.
WEFT_MATH double exp2_wide(double z) {
  const double shifted = z + 0x1.8p52;
  const double f = z - (shifted - 0x1.8p52);
  const double p = polynomial(f, 0x1.fe1772c057d9bp-17, 0x1.446a1fac35de7p-13,
                              0x1.5d8a7092abdbfp-10, 0x1.3b29dc40f9d9cp-7, 0x1.c6b08aaf2791fp-5,
                              0x1.ebfbe0a4be68ep-3, 0x1.62e42ff1162c4p-1, 0x1.ffffffffabbcfp-1);
  const int64_t n = std::bit_cast<int64_t>(shifted) - 0x4338000000000000;
  return p * std::bit_cast<double>((n + 1023) << 52);
}

/// 1 ulp; special values as in C.
WEFT_MATH float pow(float x, float y) {
  constexpr float kInfinity = std::bit_cast<float>(0x7f800000);
  const float magnitude = std::fabs(x);
  const bool finite = magnitude > 0 && magnitude < kInfinity;
  const double product =
      static_cast<double>(y) * log2_wide(finite ? static_cast<double>(magnitude) : 1.0);
  const double low = product < -200.0 ? -200.0 : product;
  const float power = static_cast<float>(exp2_wide(low > 200.0 ? 200.0 : low));
  // Powers of zero and infinity, which have no finite logarithm.
  const float grown = (magnitude == 0) == (y > 0) ? 0.0f : kInfinity;
  const float edge = magnitude == magnitude ? grown : magnitude;
  const float value = finite ? power : edge;
  const float half = 0.5f * y;
  const bool integer = y == std::trunc(y);
  const bool odd = integer && half != std::trunc(half);
  const bool negative = std::signbit(x);
  const float signed_value = negative && odd ? -value : value;
  const bool undefined = x < 0 && x > -kInfinity && !integer && std::fabs(y) < kInfinity;
  const float known = undefined ? std::bit_cast<float>(0x7fc00000) : signed_value;
  const float result = y != y ? y : known;
  const bool one = y == 0 || x == 1.0f || (x == -1.0f && std::fabs(y) == kInfinity);
  return one ? 1.0f : result;
}
WEFT_MATH double pow(double x, double y) { return ::pow(x, y); }

/// log2(x) * factor, rounded once.
WEFT_MATH float scaled_log2(float x, double factor) {
  constexpr float kInfinity = std::bit_cast<float>(0x7f800000);
  const bool finite = (x > 0) & (x < kInfinity);
  const auto value = static_cast<float>(log2_wide(finite ? static_cast<double>(x) : 1.0) * factor);
  const float edge = x == 0 ? -kInfinity : x > 0 ? kInfinity : std::bit_cast<float>(0x7fc00000);
  return finite ? value : edge;
}

/// 0.51 ulp; exact for powers of two.
WEFT_MATH float log2(float x) { return scaled_log2(x, 1.0); }
WEFT_MATH double log2(double x) { return ::log2(x); }

/// 0.51 ulp; exact for powers of ten.
WEFT_MATH float log10(float x) { return scaled_log2(x, 0x1.34413509f79ffp-2); }
WEFT_MATH double log10(double x) { return ::log10(x); }

/// 2 ulp. Adds the rounding error of 1 + x, times the derivative of the logarithm there.
WEFT_MATH float log1p(float x) {
  const float sum = 1.0f + x;
  const float lost = x - (sum - 1.0f);
  const bool finite = (sum > 0) & (sum < std::bit_cast<float>(0x7f800000));
  const float value = log(sum) + (finite ? lost / sum : 0.0f);
  return x == 0 ? x : value;
}
WEFT_MATH double log1p(double x) { return ::log1p(x); }

/// 2 ulp.
WEFT_MATH float expm1(float x) {
  // Taylor series; the first omitted term is below 2^-26 of the sum for |x| <= 0.7.
  const float p = polynomial(x, 0x1.27e4fcp-22f, 0x1.71de3ap-19f, 0x1.a01a02p-16f, 0x1.a01a02p-13f,
                             0x1.6c16c2p-10f, 0x1.111112p-7f, 0x1.555556p-5f, 0x1.555556p-3f, 0.5f);
  const float small = x == 0 ? x : x + x * x * p;
  return std::fabs(x) < 0.7f ? small : exp(x) - 1.0f;
}
WEFT_MATH double expm1(double x) { return ::expm1(x); }

/// 1 ulp; infinite when either operand is.
WEFT_MATH float hypot(float a, float b) {
  constexpr float kInfinity = std::bit_cast<float>(0x7f800000);
  const double x = static_cast<double>(a), y = static_cast<double>(b);
  const auto value = static_cast<float>(::sqrt(x * x + y * y));
  return (std::fabs(a) == kInfinity) | (std::fabs(b) == kInfinity) ? kInfinity : value;
}
WEFT_MATH double hypot(double a, double b) { return ::hypot(a, b); }

#undef WEFT_MATH

}  // namespace weft
