// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Elementwise functions, which convert integers to f32: exponentials and logarithms, functions of
// angles in radians, special functions. Shapes broadcast from the right. Results are NaN where the
// function is not defined.

/// exp(a) - 1 and log(1 + a), accurate for small a.
WEFT_API Tensor expm1(const Tensor& a);
WEFT_API Tensor log1p(const Tensor& a);
WEFT_API Tensor log2(const Tensor& a);
WEFT_API Tensor log10(const Tensor& a);
/// 2^a.
WEFT_API Tensor exp2(const Tensor& a);
/// a * 2^b.
WEFT_API Tensor ldexp(const Tensor& a, const Tensor& b);
/// The fraction, in [0.5, 1) or 0, and the exponent (i32): a is fraction * 2^exponent.
struct FractionAndExponent {
  Tensor mantissa, exponent;
};
WEFT_API FractionAndExponent frexp(const Tensor& a);
/// |a| with the sign of b.
WEFT_API Tensor copysign(const Tensor& a, const Tensor& b);
/// The next representable number of the dtype from a towards b.
WEFT_API Tensor nextafter(const Tensor& a, const Tensor& b);
/// log(exp(a) + exp(b)), without overflow of the exponentials, and log2(2^a + 2^b).
WEFT_API Tensor logaddexp(const Tensor& a, const Tensor& b);
WEFT_API Tensor logaddexp2(const Tensor& a, const Tensor& b);
/// a * log(b), but 0 where a is 0 and b is not NaN.
WEFT_API Tensor xlogy(const Tensor& a, const Tensor& b);
/// log(a / (1 - a)); with `eps`, of a limited to [eps, 1 - eps].
WEFT_API Tensor logit(const Tensor& a, std::optional<double> eps = {});

WEFT_API Tensor sin(const Tensor& a);
WEFT_API Tensor cos(const Tensor& a);
WEFT_API Tensor tan(const Tensor& a);
/// Results in [-pi/2, pi/2], [0, pi] and [-pi/2, pi/2].
WEFT_API Tensor asin(const Tensor& a);
WEFT_API Tensor acos(const Tensor& a);
WEFT_API Tensor atan(const Tensor& a);
WEFT_API Tensor sinh(const Tensor& a);
WEFT_API Tensor cosh(const Tensor& a);
WEFT_API Tensor asinh(const Tensor& a);
WEFT_API Tensor acosh(const Tensor& a);
WEFT_API Tensor atanh(const Tensor& a);
/// The angle of the point (x, y) in [-pi, pi].
WEFT_API Tensor atan2(const Tensor& y, const Tensor& x);
/// 0 for positive a, pi for negative ones.
WEFT_API Tensor angle(const Tensor& a);
/// sqrt(a^2 + b^2), without overflow of the squares; its gradient at (0, 0) is 0.
WEFT_API Tensor hypot(const Tensor& a, const Tensor& b);
/// sin(pi a) / (pi a), 1 at 0.
WEFT_API Tensor sinc(const Tensor& a);
WEFT_API Tensor deg2rad(const Tensor& a);
WEFT_API Tensor rad2deg(const Tensor& a);

// Special functions, which are computed in f64.

/// 1 - erf(a), accurate for large a; and the inverse of erf, which is NaN outside [-1, 1].
WEFT_API Tensor erfc(const Tensor& a);
WEFT_API Tensor erfinv(const Tensor& a);
/// log |gamma(a)|, its derivative, and the n-th derivative of that.
WEFT_API Tensor lgamma(const Tensor& a);
WEFT_API Tensor digamma(const Tensor& a);
WEFT_API Tensor polygamma(int64_t n, const Tensor& a);
/// The logarithm of the gamma function of `p` dims.
WEFT_API Tensor mvlgamma(const Tensor& a, int64_t p);
/// The regularised lower, and upper, incomplete gamma functions of a, from 0 to x and from x on.
/// Gradients in `a` have 8 digits.
WEFT_API Tensor igamma(const Tensor& a, const Tensor& x);
WEFT_API Tensor igammac(const Tensor& a, const Tensor& x);
/// The modified Bessel functions of the first kind of order 0 and 1.
WEFT_API Tensor i0(const Tensor& a);
WEFT_API Tensor i1(const Tensor& a);

}  // namespace weft
