// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Element by element; shapes broadcast from the right. No gradient flows through what only rounds.

/// To the integer below, above, towards 0, and the nearest (halves to the even one); the dtype
/// stays, and integers are themselves.
WEFT_API Tensor floor(const Tensor& a);
WEFT_API Tensor ceil(const Tensor& a);
WEFT_API Tensor trunc(const Tensor& a);
WEFT_API Tensor round(const Tensor& a);

/// The quotient rounded down, as Python's //. Integers by 0 give 0.
WEFT_API Tensor floor_divide(const Tensor& a, const Tensor& b);
/// a - floor_divide(a, b) * b, which has the sign of b, as Python's %. Integers by 0 give 0.
WEFT_API Tensor remainder(const Tensor& a, const Tensor& b);

/// Whether the sign is negative, also of -0 and NaN: bool.
WEFT_API Tensor signbit(const Tensor& a);
/// |a| with the sign of b; integers as f32.
WEFT_API Tensor copysign(const Tensor& a, const Tensor& b);
/// The number of the dtype that is next to a on the way to b; integers as f32.
WEFT_API Tensor nextafter(const Tensor& a, const Tensor& b);

}  // namespace weft
