// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/tensor.h"

namespace weft {

// PyTorch's elementwise functions that are compositions of others. Shapes broadcast from the right.

/// a + value * b * c, and a + value * b / c.
WEFT_API Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, Number value = 1);
WEFT_API Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, Number value = 1);
/// a + weight * (b - a).
WEFT_API Tensor lerp(const Tensor& a, const Tensor& b, const Operand& weight);
/// b - alpha * a.
WEFT_API Tensor rsub(const Tensor& a, const Operand& b, Number alpha = 1);

/// a - trunc(a / b) * b, which has the sign of a. An integer modulo 0 gives 0.
WEFT_API Tensor fmod(const Tensor& a, const Tensor& b);
/// a - trunc(a).
WEFT_API Tensor frac(const Tensor& a);
/// The larger, and the smaller, of both; where one is NaN, the other.
WEFT_API Tensor fmax(const Tensor& a, const Tensor& b);
WEFT_API Tensor fmin(const Tensor& a, const Tensor& b);
/// 0 for negative a, 1 for positive a, `b` for 0.
WEFT_API Tensor heaviside(const Tensor& a, const Tensor& b);
/// a * 2^b.
WEFT_API Tensor ldexp(const Tensor& a, const Tensor& b);
/// a to the power b, in f64.
WEFT_API Tensor float_power(const Tensor& a, const Tensor& b);

// The following convert integers to f32.

/// 2^a.
WEFT_API Tensor exp2(const Tensor& a);
/// a * log(b), but 0 where a is 0 and b is not NaN.
WEFT_API Tensor xlogy(const Tensor& a, const Tensor& b);
/// log(a / (1 - a)); with `eps`, of a limited to [eps, 1 - eps].
WEFT_API Tensor logit(const Tensor& a, std::optional<double> eps = {});
/// log2(2^a + 2^b).
WEFT_API Tensor logaddexp2(const Tensor& a, const Tensor& b);
/// sin(pi a) / (pi a), 1 at 0.
WEFT_API Tensor sinc(const Tensor& a);
WEFT_API Tensor deg2rad(const Tensor& a);
WEFT_API Tensor rad2deg(const Tensor& a);

/// a with NaN, inf and -inf replaced; without numbers by 0 and by the largest and the smallest
/// number of the dtype.
WEFT_API Tensor nan_to_num(const Tensor& a, double nan = 0, std::optional<double> posinf = {},
                           std::optional<double> neginf = {});

/// 0 for positive a, pi for negative ones.
WEFT_API Tensor angle(const Tensor& a);

// Results are bool.

WEFT_API Tensor isposinf(const Tensor& a);
WEFT_API Tensor isneginf(const Tensor& a);
/// |a - b| <= atol + rtol * |b|, or equal; NaN equals NaN if `equal_nan`.
WEFT_API Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                        bool equal_nan = false);
/// Whether all elements are close; equal on all ranks.
WEFT_API bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                       bool equal_nan = false);

}  // namespace weft
