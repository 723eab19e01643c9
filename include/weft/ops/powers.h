// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Element by element; shapes broadcast from the right.

/// a to the power b. Integers wrap, and a negative exponent gives the integer part of the quotient
/// (0 for 0). A C++ number is weak, as in the arithmetic of `weft/ops/elementwise.h`.
WEFT_API Tensor pow(const Tensor& a, const Tensor& b);
WEFT_API Tensor pow(const Tensor& a, double b);
WEFT_API Tensor pow(double a, const Tensor& b);

// These compute integers in f32.

/// exp(a) - 1 and log(1 + a), exact for small a.
WEFT_API Tensor expm1(const Tensor& a);
WEFT_API Tensor log1p(const Tensor& a);
WEFT_API Tensor log2(const Tensor& a);
WEFT_API Tensor log10(const Tensor& a);
/// log(exp(a) + exp(b)), without overflow on the way.
WEFT_API Tensor logaddexp(const Tensor& a, const Tensor& b);

}  // namespace weft
