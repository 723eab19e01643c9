// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/math/logarithms.h"

namespace weft {

// Special functions of floats, branch-free as in math.h, with coefficients fitted by Chebyshev
// polynomials.
#define WEFT_MATH [[gnu::always_inline]] WEFT_FN inline

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
