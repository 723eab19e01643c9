// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "src/base/numeric.h"
#include "src/kernels/math/logarithms.h"

namespace weft {

// Special functions in double, from which float results are rounded. Series and recurrences are
// those of Abramowitz and Stegun (A&S) and of Cephes.

inline constexpr double kPi = 3.14159265358979323846;
inline constexpr double kNan = __builtin_nan(""), kInfinite = __builtin_inf();

WEFT_FN inline double erfc_of(double x) { return ::erfc(x); }

/// Winitzki's approximation and three steps of Newton's method for erf(y) = x.
WEFT_FN inline double erfinv_of(double x) {
  const double size = ::fabs(x);
  if (!(size <= 1)) return kNan;
  if (size == 1) return x * kInfinite;
  const double rest = ::log1p(-x * x), half = 2 / (kPi * 0.147) + rest / 2;
  double y = ::copysign(::sqrt(::sqrt(half * half - rest / 0.147) - half), x);
  for (int i = 0; i < 3; ++i) {
    const double error = y > 0 ? (1 - x) - ::erfc(y) : ::erfc(-y) - (1 + x);
    y += error * -0.88622692545275801 * ::exp(y * y);
  }
  return y;
}

/// log |gamma(x)| by Stirling's series (A&S 6.1.41) above 10, after steps up; by reflection below
/// 0.5.
WEFT_FN inline double lgamma_of(double x) {
  if (x != x || ::fabs(x) == kInfinite) return x * x;
  if (x <= 0 && x == ::floor(x)) return kInfinite;
  if (x < 0.5) {
    // The sine of the distance to the next integer keeps its digits.
    const double sine = ::fabs(::sin(kPi * (x - ::floor(x))));
    return ::log(kPi / sine) - lgamma_of(1 - x);
  }
  double factor = 1;
  while (x < 10) factor *= x++;
  const double s = 1 / (x * x);
  const double tail =
      (1.0 / 12 - s * (1.0 / 360 - s * (1.0 / 1260 - s * (1.0 / 1680 - s / 1188)))) / x;
  return (x - 0.5) * ::log(x) - x + 0.91893853320467274 + tail - ::log(factor);
}

/// The derivative of lgamma (A&S 6.3.18).
WEFT_FN inline double digamma_wide(double x) {
  if (x == 0) return ::copysign(kInfinite, -x);
  if (x < 0) {
    if (x == ::floor(x)) return kNan;
    return digamma_wide(1 - x) - kPi / ::tan(kPi * (x - ::floor(x)));
  }
  double below = 0;
  while (x < 10) below += 1 / x++;
  const double s = 1 / (x * x);
  const double tail =
      s * (1.0 / 12 - s * (1.0 / 120 - s * (1.0 / 252 - s * (1.0 / 240 - s / 132))));
  return ::log(x) - 0.5 / x - tail - below;
}

/// digamma(x) of floats, to 2^-40 and 16 ulp, without branches: x + 6 by the asymptotic series,
/// less the six steps, and negative x by reflection. Sets `rare` for poles, infinities and NaN.
WEFT_FN inline float plain_digamma(float a, int& rare) {
  const auto x = static_cast<double>(a);
  const double from = x > 0 ? x : 1 - x, y = from + 6, s = 1 / (y * y);
  const double tail =
      s * polynomial(s, 691.0 / 32760, -1.0 / 132, 1.0 / 240, -1.0 / 252, 1.0 / 120, -1.0 / 12);
  // The steps 1 / from + ... + 1 / (from + 5), in pairs from both ends.
  const double u = from * (from + 5);
  const double below = (from + from + 5) * (u * (3 * u + 20) + 24) / (u * (u + 4) * (u + 6));
  const double above = log_wide(y) - 0.5 / y + tail - below;
  const double apart = x - std::rint(x), sine = sine_of_distance(x);
  const double cosine = sine_of_distance(apart + 0.5);
  const double tangent = std::copysign(sine / cosine, apart);
  // Large ones have no step that counts, or lie at poles.
  const bool plain = (x > 0 && x < 1e30) || (x < 0 && sine != 0.0);
  rare |= !plain;
  return static_cast<float>(x > 0 ? above : above - kPi / tangent);
}

/// Hurwitz's zeta function, the sum of (q + k)^-x over k >= 0, by Euler and Maclaurin.
WEFT_FN inline double zeta_wide(double x, double q) {
  if (x == 1) return kInfinite;
  if (!(x > 1)) return kNan;
  if (q <= 0) {
    if (q == ::floor(q)) return kInfinite;
    if (x != ::floor(x)) return kNan;
  }
  // 2k! / B2k.
  const double divisors[] = {12.0,          -720.0,
                             30240.0,       -1209600.0,
                             47900160.0,    -1307674368000.0 / 691,
                             74724249600.0, -10670622842880000.0 / 3617};
  double sum = ::pow(q, -x), term = 0, a = q;
  for (int i = 0; i < 9 || a <= 9; ++i) {
    a += 1;
    term = ::pow(a, -x);
    sum += term;
    if (::fabs(term) < 1e-17 * ::fabs(sum)) return sum;
  }
  sum += term * a / (x - 1) - term / 2;
  double factor = 1, k = 0;
  for (const double divisor : divisors) {
    factor *= x + k;
    term /= a;
    const double added = factor * term / divisor;
    sum += added;
    if (::fabs(added) < 1e-17 * ::fabs(sum)) return sum;
    factor *= x + k + 1;
    term /= a;
    k += 2;
  }
  return sum;
}

/// The n-th derivative of digamma (A&S 6.4.10).
WEFT_FN inline double polygamma_wide(int64_t n, double x) {
  if (n == 0) return digamma_wide(x);
  const auto order = static_cast<double>(n + 1);
  return (n % 2 ? 1 : -1) * ::exp(lgamma_of(order)) * zeta_wide(order, x);
}

/// The regularised lower incomplete gamma function, or, when `upper`, its complement: the series
/// A&S 6.5.29 or Lentz's continued fraction 6.5.31, whichever converges.
WEFT_FN inline double igamma_wide(double a, double x, bool upper) {
  if (!(a >= 0) || !(x >= 0) || (a == 0 && x == 0)) return kNan;
  if (a == 0 || x == kInfinite) return a == kInfinite ? kNan : upper ? 0 : 1;
  if (x == 0 || a == kInfinite) return upper ? 1 : 0;
  constexpr int kSteps = 10000;
  const double scale = ::exp(a * ::log(x) - x - lgamma_of(a));
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int k = 1; k < kSteps && term > sum * 1e-17; ++k) sum += term *= x / (a + k);
    return upper ? 1 - scale * sum : scale * sum;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, fraction = d;
  for (int k = 1; k < kSteps; ++k) {
    const double numerator = -k * (k - a);
    b += 2;
    d = 1 / (numerator * d + b);
    c = b + numerator / c;
    fraction *= d * c;
    if (::fabs(d * c - 1) < 1e-16) break;
  }
  return upper ? scale * fraction : 1 - scale * fraction;
}

/// The modified Bessel function I of order 0 or 1: the ascending series (A&S 9.6.10), whose terms
/// are positive, and the asymptotic one (9.7.1) from 25 on.
WEFT_FN inline double bessel_i_wide(int order, double x) {
  const double size = ::fabs(x), sign = order == 1 && x < 0 ? -1 : 1;
  if (size < 25) {
    const double quarter = size * size / 4;
    double term = order == 1 ? size / 2 : 1, sum = term;
    for (int k = 1; term > sum * 1e-17; ++k) sum += term *= quarter / (k * (k + order));
    return sign * sum;
  }
  const double mu = 4.0 * order * order;
  double term = 1, sum = 1;
  for (int k = 1; k < 30 && ::fabs(term) > 1e-17; ++k) {
    term *= -(mu - (2 * k - 1) * (2 * k - 1)) / (k * 8 * size);
    sum += term;
  }
  return sign * ::exp(size / 2) * (::exp(size / 2) / ::sqrt(2 * kPi * size) * sum);
}

}  // namespace weft
