// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/math/math.h"

namespace weft {

// Logarithms of other bases, and functions accurate near 1 and 0; branch-free, as in src/math.h.
#define WEFT_MATH [[gnu::always_inline]] WEFT_FN inline

/// log2(x) * factor, rounded once.
WEFT_MATH float scaled_log2(float x, double factor) {
  constexpr float kInfinity = std::bit_cast<float>(0x7f800000);
  const bool finite = (x > 0) & (x < kInfinity);
  const auto value = static_cast<float>(log2_wide(finite ? x : 1.0f) * factor);
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
  float p = 0x1.27e4fcp-22f;
  p = p * x + 0x1.71de3ap-19f;
  p = p * x + 0x1.a01a02p-16f;
  p = p * x + 0x1.a01a02p-13f;
  p = p * x + 0x1.6c16c2p-10f;
  p = p * x + 0x1.111112p-7f;
  p = p * x + 0x1.555556p-5f;
  p = p * x + 0x1.555556p-3f;
  p = p * x + 0.5f;
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
