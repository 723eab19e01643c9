// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Elementwise ops; shapes broadcast from the right.

// Results are bool. Operands have any dtype; every nonzero value is true, also NaN.

WEFT_API Tensor logical_not(const Tensor& a);
WEFT_API Tensor logical_and(const Tensor& a, const Tensor& b);
WEFT_API Tensor logical_or(const Tensor& a, const Tensor& b);
WEFT_API Tensor logical_xor(const Tensor& a, const Tensor& b);
/// All integers are finite.
WEFT_API Tensor isfinite(const Tensor& a);
WEFT_API Tensor isinf(const Tensor& a);
WEFT_API Tensor isnan(const Tensor& a);

// Bitwise ops on integers (two's complement) and bool; std::invalid_argument for other dtypes.

WEFT_API Tensor bitwise_invert(const Tensor& a);
WEFT_API Tensor bitwise_and(const Tensor& a, const Tensor& b);
WEFT_API Tensor bitwise_or(const Tensor& a, const Tensor& b);
WEFT_API Tensor bitwise_xor(const Tensor& a, const Tensor& b);
/// Integers only. A shift by a negative number, or by at least the dtype's bits, gives 0, or -1 for
/// a negative number that is shifted right.
WEFT_API Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
WEFT_API Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);

}  // namespace weft
