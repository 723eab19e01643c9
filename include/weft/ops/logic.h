// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Element by element; shapes broadcast from the right.

// Results are bool. Of any dtype: what is not zero is true, NaN too.

WEFT_API Tensor logical_not(const Tensor& a);
WEFT_API Tensor logical_and(const Tensor& a, const Tensor& b);
WEFT_API Tensor logical_or(const Tensor& a, const Tensor& b);
WEFT_API Tensor logical_xor(const Tensor& a, const Tensor& b);
/// Integers are finite.
WEFT_API Tensor isfinite(const Tensor& a);
WEFT_API Tensor isinf(const Tensor& a);
WEFT_API Tensor isnan(const Tensor& a);

// On the bits of integers (two's complement) and of bool; std::invalid_argument for others.

WEFT_API Tensor bitwise_invert(const Tensor& a);
WEFT_API Tensor bitwise_and(const Tensor& a, const Tensor& b);
WEFT_API Tensor bitwise_or(const Tensor& a, const Tensor& b);
WEFT_API Tensor bitwise_xor(const Tensor& a, const Tensor& b);
/// Not of bool. Shifted by a negative number, or by at least the dtype's bits: 0, and -1 for a
/// negative number shifted right.
WEFT_API Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
WEFT_API Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);

}  // namespace weft
