// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "weft/export.h"
#include "weft/number.h"
#include "weft/operand.h"
#include "weft/ops/factories.h"
#include "weft/tensor.h"

namespace weft {

// Elementwise ops. Shapes broadcast from the right; dtypes promote as in the Python array API. A
// C++ number is weak: it takes the tensor's dtype, but a floating one (2.0) makes an integer tensor
// f32.

WEFT_API Tensor add(const Tensor& a, const Tensor& b);
WEFT_API Tensor sub(const Tensor& a, const Tensor& b);
WEFT_API Tensor mul(const Tensor& a, const Tensor& b);
WEFT_API Tensor div(const Tensor& a, const Tensor& b);
WEFT_API Tensor add(const Tensor& a, const Number& b);
WEFT_API Tensor sub(const Tensor& a, const Number& b);
WEFT_API Tensor sub(const Number& a, const Tensor& b);
WEFT_API Tensor mul(const Tensor& a, const Number& b);
WEFT_API Tensor div(const Tensor& a, const Number& b);
WEFT_API Tensor div(const Number& a, const Tensor& b);
/// a + value * b * c, and a + value * b / c.
WEFT_API Tensor addcmul(const Tensor& a, const Tensor& b, const Tensor& c, const Number& value = 1);
WEFT_API Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, const Number& value = 1);
/// a + weight * (b - a).
WEFT_API Tensor lerp(const Tensor& a, const Tensor& b, const Operand& weight);
/// b - alpha * a.
WEFT_API Tensor rsub(const Tensor& a, const Operand& b, const Number& alpha = 1);

/// The quotient rounded down, as Python's //. Integer division by 0 gives 0.
WEFT_API Tensor floor_divide(const Tensor& a, const Tensor& b);
/// a - floor_divide(a, b) * b, which has the sign of b, as Python's %. An integer modulo 0 gives 0.
WEFT_API Tensor remainder(const Tensor& a, const Tensor& b);
/// a - trunc(a / b) * b, which has the sign of a. An integer modulo 0 gives 0.
WEFT_API Tensor fmod(const Tensor& a, const Tensor& b);
/// a to the power b. Integers wrap; a negative exponent gives the integer part of the quotient (0
/// for base 0).
WEFT_API Tensor pow(const Tensor& a, const Tensor& b);
WEFT_API Tensor pow(const Tensor& a, const Number& b);
WEFT_API Tensor pow(const Number& a, const Tensor& b);
/// a to the power b, in f64.
WEFT_API Tensor float_power(const Tensor& a, const Tensor& b);

WEFT_API Tensor neg(const Tensor& a);
WEFT_API Tensor abs(const Tensor& a);
/// -1, 0 or 1 by the sign; NaN for NaN. Has no gradient.
WEFT_API Tensor sign(const Tensor& a);
WEFT_API Tensor square(const Tensor& a);
WEFT_API Tensor sqrt(const Tensor& a);
/// 1 / sqrt(a).
WEFT_API Tensor rsqrt(const Tensor& a);
/// 1 / a.
WEFT_API Tensor reciprocal(const Tensor& a);
WEFT_API Tensor exp(const Tensor& a);
WEFT_API Tensor log(const Tensor& a);

WEFT_API Tensor tanh(const Tensor& a);
/// 1 / (1 + exp(-a)).
WEFT_API Tensor sigmoid(const Tensor& a);
/// a * sigmoid(a).
WEFT_API Tensor silu(const Tensor& a);
/// a / 2 * (1 + erf(a / sqrt(2))).
WEFT_API Tensor gelu(const Tensor& a);
/// The approximation of gelu by tanh: a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))).
WEFT_API Tensor gelu_tanh(const Tensor& a);
/// gelu, or gelu_tanh for `approximate` "tanh".
WEFT_API Tensor gelu(const Tensor& a, std::string_view approximate);
/// 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to a.
WEFT_API Tensor erf(const Tensor& a);
/// a where it is positive, 0 elsewhere; its gradient at 0 is 0.
WEFT_API Tensor relu(const Tensor& a);

WEFT_API Tensor maximum(const Tensor& a, const Tensor& b);
WEFT_API Tensor minimum(const Tensor& a, const Tensor& b);
/// The larger, and the smaller, of both; where one is NaN, the other.
WEFT_API Tensor fmax(const Tensor& a, const Tensor& b);
WEFT_API Tensor fmin(const Tensor& a, const Tensor& b);
/// a limited to [low, high]; a copy without bounds. std::invalid_argument for a number that
/// excludes all values of an integer dtype.
WEFT_API Tensor clip(const Tensor& a, const std::optional<Operand>& low,
                     const std::optional<Operand>& high = {});
/// a where `condition` (bool) holds, b elsewhere.
WEFT_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// `value`, in the dtype of `a`, where `mask` (bool) holds, and a elsewhere.
WEFT_API Tensor masked_fill(const Tensor& a, const Tensor& mask, const Operand& value);
/// a with NaN, inf and -inf replaced; without numbers by 0 and by the largest and the smallest
/// number of the dtype.
WEFT_API Tensor nan_to_num(const Tensor& a, double nan = 0, std::optional<double> posinf = {},
                           std::optional<double> neginf = {});

/// Converts to `dtype`; `a` itself if it has it. Floating to integer rounds towards zero.
WEFT_API Tensor cast(const Tensor& a, DType dtype);
/// The same elements in new memory, in the same layout.
WEFT_API Tensor clone(const Tensor& a);
/// `a` itself if its elements are dense in memory, in row-major order; otherwise a copy that is.
WEFT_API Tensor contiguous(const Tensor& a);
/// `b` as a tensor for an op with `a`: a number becomes a tensor without dims, of the dtype that
/// both promote to, Replicate over the mesh of `a`.
WEFT_API Tensor next_to(const Tensor& a, const Operand& b);

// Rounding. No gradient flows through ops that only round.

/// Round down, up, towards 0, and to the nearest integer (halves to even). The dtype stays;
/// integers are copied.
WEFT_API Tensor floor(const Tensor& a);
WEFT_API Tensor ceil(const Tensor& a);
WEFT_API Tensor trunc(const Tensor& a);
WEFT_API Tensor round(const Tensor& a);
/// a - trunc(a).
WEFT_API Tensor frac(const Tensor& a);
/// 0 for negative a, 1 for positive a, `b` for 0.
WEFT_API Tensor heaviside(const Tensor& a, const Tensor& b);

// Comparisons and logic. Results are bool. There is no operator==.

WEFT_API Tensor equal(const Tensor& a, const Tensor& b);
WEFT_API Tensor not_equal(const Tensor& a, const Tensor& b);
WEFT_API Tensor less(const Tensor& a, const Tensor& b);
WEFT_API Tensor less_equal(const Tensor& a, const Tensor& b);
WEFT_API Tensor greater(const Tensor& a, const Tensor& b);
WEFT_API Tensor greater_equal(const Tensor& a, const Tensor& b);
inline Tensor equal(const Tensor& a, const Number& b) { return equal(a, number_like(a, b)); }
inline Tensor not_equal(const Tensor& a, const Number& b) {
  return not_equal(a, number_like(a, b));
}
inline Tensor less(const Tensor& a, const Number& b) { return less(a, number_like(a, b)); }
inline Tensor less_equal(const Tensor& a, const Number& b) {
  return less_equal(a, number_like(a, b));
}
inline Tensor greater(const Tensor& a, const Number& b) { return greater(a, number_like(a, b)); }
inline Tensor greater_equal(const Tensor& a, const Number& b) {
  return greater_equal(a, number_like(a, b));
}
/// Operands have any dtype; every nonzero value is true, also NaN.
WEFT_API Tensor logical_not(const Tensor& a);
WEFT_API Tensor logical_and(const Tensor& a, const Tensor& b);
WEFT_API Tensor logical_or(const Tensor& a, const Tensor& b);
WEFT_API Tensor logical_xor(const Tensor& a, const Tensor& b);
/// All integers are finite.
WEFT_API Tensor isfinite(const Tensor& a);
WEFT_API Tensor isinf(const Tensor& a);
WEFT_API Tensor isnan(const Tensor& a);
WEFT_API Tensor isposinf(const Tensor& a);
WEFT_API Tensor isneginf(const Tensor& a);
/// True where the sign bit is set, also for -0 and NaN.
WEFT_API Tensor signbit(const Tensor& a);
/// |a - b| <= atol + rtol * |b|, or equal; NaN equals NaN if `equal_nan`.
WEFT_API Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                        bool equal_nan = false);
/// True when all elements are close; equal on all ranks.
WEFT_API bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
                       bool equal_nan = false);

// Bitwise ops on integers (two's complement) and bool; std::invalid_argument for other dtypes.

WEFT_API Tensor bitwise_invert(const Tensor& a);
WEFT_API Tensor bitwise_and(const Tensor& a, const Tensor& b);
WEFT_API Tensor bitwise_or(const Tensor& a, const Tensor& b);
WEFT_API Tensor bitwise_xor(const Tensor& a, const Tensor& b);
/// Integers only. A shift by a negative number, or by at least the dtype's bits, gives 0, or -1 for
/// a negative number that is shifted right.
WEFT_API Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
WEFT_API Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, const Number& b) { return add(a, b); }
inline Tensor operator+(const Number& a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(const Tensor& a, const Number& b) { return sub(a, b); }
inline Tensor operator-(const Number& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Number& b) { return mul(a, b); }
inline Tensor operator*(const Number& a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(const Tensor& a, const Number& b) { return div(a, b); }
inline Tensor operator/(const Number& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return less(a, b); }
inline Tensor operator<(const Tensor& a, const Number& b) { return less(a, b); }
inline Tensor operator<(const Number& a, const Tensor& b) { return greater(b, a); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return less_equal(a, b); }
inline Tensor operator<=(const Tensor& a, const Number& b) { return less_equal(a, b); }
inline Tensor operator<=(const Number& a, const Tensor& b) { return greater_equal(b, a); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return greater(a, b); }
inline Tensor operator>(const Tensor& a, const Number& b) { return greater(a, b); }
inline Tensor operator>(const Number& a, const Tensor& b) { return less(b, a); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return greater_equal(a, b); }
inline Tensor operator>=(const Tensor& a, const Number& b) { return greater_equal(a, b); }
inline Tensor operator>=(const Number& a, const Tensor& b) { return less_equal(b, a); }

}  // namespace weft
