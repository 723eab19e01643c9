// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Elementwise ops, with angles in radians; integers are converted to f32. Results are NaN where the
// function is not defined.

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

/// The angle of the point (x, y) in [-pi, pi]; shapes broadcast from the right.
WEFT_API Tensor atan2(const Tensor& y, const Tensor& x);
/// sqrt(a^2 + b^2), without overflow of the squares; its gradient at (0, 0) is 0.
WEFT_API Tensor hypot(const Tensor& a, const Tensor& b);

}  // namespace weft
