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
  return std::fabs(a) == kInfinity || std::fabs(b) == kInfinity ? kInfinity : value;
}
WEFT_MATH double hypot(double a, double b) { return ::hypot(a, b); }

// Special functions of floats, with coefficients fitted by Chebyshev polynomials.

/// 1 ulp. exp(-x^2) times a function of 1 / (1 + |x| / 2), in double.
WEFT_MATH float erfc_of(float x) {
  // Behind 12 the result is 0.
  const double size = std::fabs(x) > 12.0f ? 12.0 : static_cast<double>(std::fabs(x));
  const double t = 1.0 / (1.0 + 0.5 * size);
  const double of_size =
      polynomial(t - 0.575, -0x1.6fe0fdbda38ebp-4, -0x1.11d536d8c9d0ap-3, 0x1.97269c4bb8e40p-3,
                 0x1.04a0f906a8217p-3, -0x1.0b92d31114b52p-2, -0x1.33ddcfee95efap-5,
                 0x1.312a30efc05fcp-2, -0x1.819bacea96ddcp-5, -0x1.9fcc16fa3f1a0p-2,
                 0x1.9d206d8e0f141p-4, 0x1.5dfcf1a57478ap+0, -0x1.23d66141a1370p-1);
  const double power = of_size - size * size;
  const double above = t * exp2_wide(power * 0x1.71547652b82fep+0);
  const auto value = static_cast<float>(x < 0 ? 2.0 - above : above);
  return x != x ? x : value;
}

/// 3 ulp. x times a polynomial of w = -log(1 - x^2) or, in the tails, of its root.
WEFT_MATH float erfinv_of(float x) {
  const float w = -log((1.0f - x) * (1.0f + x));
  const float root = sqrt(w < 5.0f ? 5.0f : w);
  const float central =
      polynomial(w - 2.5f, 0x1.9218a2p-32f, -0x1.2c95bap-27f, 0x1.2de6b6p-26f, 0x1.f3e054p-22f,
                 -0x1.cca6d6p-19f, -0x1.4ce132p-18f, 0x1.c9c2b2p-13f, -0x1.486676p-10f,
                 -0x1.11c40ep-8f, 0x1.f91e8cp-3f, 0x1.805c5ep+0f);
  const float tail = polynomial(root - 0x1.8f1bbcp+1f, 0x1.12aa24p-13f, -0x1.7dc4c6p-13f,
                                -0x1.4bbeb8p-12f, 0x1.5bbd30p-10f, -0x1.5168a8p-9f, 0x1.fb47dcp-9f,
                                -0x1.626c02p-8f, 0x1.d54d18p-8f, 0x1.00ed3ap+0f, 0x1.79c522p+1f);
  const float value = x * (w < 5.0f ? central : tail);
  const float size = std::fabs(x);
  const float edge =
      size == 1.0f ? x * std::bit_cast<float>(0x7f800000) : std::bit_cast<float>(0x7fc00000);
  return size < 1.0f ? value : edge;
}

/// log(x) of a positive double.
WEFT_MATH double log_wide(double x) { return log2_wide(x) * 0x1.62e42fefa39efp-1; }

/// The sine of pi times the distance to the nearest integer.
WEFT_MATH double sine_of_distance(double x) {
  const double distance = std::fabs(x - std::rint(x));
  return distance * polynomial(distance * distance, 0x1.d53bd3bd35c90p-12, -0x1.e29ad1ab2a695p-8,
                               0x1.5077083a3eb93p-4, -0x1.32d2c97eafeccp-1, 0x1.466bc66d92225p+1,
                               -0x1.4abbce6244c1ap+2, 0x1.921fb544429cdp+1);
}

/// log(gamma(x)) for finite x >= 1: by its zeros 1 and 2 times a polynomial below 3, from there by
/// Stirling's series.
WEFT_MATH double lgamma_from_one(double x) {
  const double near = x < 3.0 ? x : 3.0;
  const double over_zeros = polynomial(
      near - 2.0, 0x1.2fb3827bf6e29p-16, -0x1.43b935a864ef3p-15, 0x1.902d4bd810d02p-16,
      -0x1.bb040931429d6p-15, 0x1.922b74c32ec2fp-13, -0x1.bdd5df631cd7fp-12, 0x1.de748b6f9e3a8p-11,
      -0x1.138b2729c702cp-9, 0x1.479d47e2bbc80p-8, -0x1.95d473765742fp-7, 0x1.0e0c970026b43p-5,
      -0x1.9ae64955be3c6p-4, 0x1.b0ee60720e195p-2);
  const double small = (near - 1.0) * (near - 2.0) * over_zeros;
  const double inverse = 1.0 / x;
  const double tail = inverse * polynomial(inverse * inverse, -691.0 / 360360, 1.0 / 1188,
                                           -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12);
  const double large = (x - 0.5) * log_wide(x) - x + 0.91893853320467274 + tail;
  return x < 3.0 ? small : large;
}

/// 2 ulp, apart from the zeros of negative x.
WEFT_MATH float lgamma_of(float x) {
  constexpr float kInfinity = std::bit_cast<float>(0x7f800000);
  const bool is_finite = std::fabs(x) < kInfinity;
  const double wide = is_finite ? static_cast<double>(x) : 1.0;
  const double from_one = lgamma_from_one(x >= 1.0f ? wide : x > 0.0f ? wide + 1.0 : 1.0 - wide);
  // gamma(x) = gamma(x + 1) / x, and for negative x, gamma(x) gamma(1 - x) = pi / sin(pi x).
  const double sine = sine_of_distance(wide);
  const double divisor = x > 0.0f ? wide : sine * 0x1.45f306dc9c883p-2;
  const double logarithm = log_wide(divisor > 0.0 ? divisor : 1.0);
  const double below_one = (x > 0.0f ? from_one : -from_one) - logarithm;
  const auto value = static_cast<float>(x >= 1.0f ? from_one : below_one);
  const bool is_pole = (x <= 0.0f) & (sine == 0.0);
  const float finite = is_pole ? kInfinity : value;
  return is_finite ? finite : x * x;
}

#undef WEFT_MATH

}  // namespace weft
