// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/number.h"
#include "weft/tensor.h"

namespace weft {

// Elementwise ops; shapes broadcast from the right.

/// a to the power b. Integers wrap; a negative exponent gives the integer part of the quotient (0
/// for base 0). A C++ number is weak, as in `weft/ops/elementwise.h`.
WEFT_API Tensor pow(const Tensor& a, const Tensor& b);
WEFT_API Tensor pow(const Tensor& a, Number b);
WEFT_API Tensor pow(Number a, const Tensor& b);

// The following ops convert integers to f32.

/// exp(a) - 1 and log(1 + a), accurate for small a.
WEFT_API Tensor expm1(const Tensor& a);
WEFT_API Tensor log1p(const Tensor& a);
WEFT_API Tensor log2(const Tensor& a);
WEFT_API Tensor log10(const Tensor& a);
/// log(exp(a) + exp(b)), without overflow of the exponentials.
WEFT_API Tensor logaddexp(const Tensor& a, const Tensor& b);

}  // namespace weft
