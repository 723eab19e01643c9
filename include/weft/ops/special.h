// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Special functions, elementwise. Integers are converted to f32; values are computed in f64.

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
/// The fraction, in [0.5, 1) or 0, and the exponent (i32): a is fraction * 2^exponent.
struct FractionAndExponent {
  Tensor mantissa, exponent;
};
WEFT_API FractionAndExponent frexp(const Tensor& a);

}  // namespace weft
