// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Elementwise ops; shapes broadcast from the right. No gradient flows through ops that only round.

/// Round down, up, towards 0, and to the nearest integer (halves to even). The dtype stays;
/// integers are copied.
WEFT_API Tensor floor(const Tensor& a);
WEFT_API Tensor ceil(const Tensor& a);
WEFT_API Tensor trunc(const Tensor& a);
WEFT_API Tensor round(const Tensor& a);

/// The quotient rounded down, as Python's //. Integer division by 0 gives 0.
WEFT_API Tensor floor_divide(const Tensor& a, const Tensor& b);
/// a - floor_divide(a, b) * b, which has the sign of b, as Python's %. An integer modulo 0 gives 0.
WEFT_API Tensor remainder(const Tensor& a, const Tensor& b);

/// Whether the sign bit is set, also for -0 and NaN: bool.
WEFT_API Tensor signbit(const Tensor& a);
/// |a| with the sign of b; integers are converted to f32.
WEFT_API Tensor copysign(const Tensor& a, const Tensor& b);
/// The next representable number of the dtype from a towards b; integers are converted to f32.
WEFT_API Tensor nextafter(const Tensor& a, const Tensor& b);

}  // namespace weft
