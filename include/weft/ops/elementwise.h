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
WEFT_API Tensor add(const Tensor& a, Number b);
WEFT_API Tensor sub(const Tensor& a, Number b);
WEFT_API Tensor sub(Number a, const Tensor& b);
WEFT_API Tensor mul(const Tensor& a, Number b);
WEFT_API Tensor div(const Tensor& a, Number b);
WEFT_API Tensor div(Number a, const Tensor& b);
WEFT_API Tensor maximum(const Tensor& a, const Tensor& b);
WEFT_API Tensor minimum(const Tensor& a, const Tensor& b);

WEFT_API Tensor neg(const Tensor& a);
WEFT_API Tensor abs(const Tensor& a);
WEFT_API Tensor exp(const Tensor& a);
WEFT_API Tensor log(const Tensor& a);
WEFT_API Tensor sqrt(const Tensor& a);
/// 1 / sqrt(a).
WEFT_API Tensor rsqrt(const Tensor& a);
WEFT_API Tensor tanh(const Tensor& a);
/// 1 / (1 + exp(-a)).
WEFT_API Tensor sigmoid(const Tensor& a);
/// a * sigmoid(a).
WEFT_API Tensor silu(const Tensor& a);
/// a / 2 * (1 + erf(a / sqrt(2))).
WEFT_API Tensor gelu(const Tensor& a);
/// The approximation of gelu by tanh: a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))).
WEFT_API Tensor gelu_tanh(const Tensor& a);
/// gelu, or for `approximate` "tanh": a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))).
WEFT_API Tensor gelu(const Tensor& a, std::string_view approximate);
WEFT_API Tensor square(const Tensor& a);
/// -1, 0 or 1 by the sign; NaN for NaN. Has no gradient.
WEFT_API Tensor sign(const Tensor& a);
/// 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to a.
WEFT_API Tensor erf(const Tensor& a);
/// a where it is positive, 0 elsewhere; its gradient at 0 is 0.
WEFT_API Tensor relu(const Tensor& a);

/// Comparisons return bool tensors. There is no operator==.
WEFT_API Tensor equal(const Tensor& a, const Tensor& b);
WEFT_API Tensor not_equal(const Tensor& a, const Tensor& b);
WEFT_API Tensor less(const Tensor& a, const Tensor& b);
WEFT_API Tensor less_equal(const Tensor& a, const Tensor& b);
WEFT_API Tensor greater(const Tensor& a, const Tensor& b);
WEFT_API Tensor greater_equal(const Tensor& a, const Tensor& b);
inline Tensor equal(const Tensor& a, Number b) { return equal(a, number_like(a, b)); }
inline Tensor not_equal(const Tensor& a, Number b) { return not_equal(a, number_like(a, b)); }
inline Tensor less(const Tensor& a, Number b) { return less(a, number_like(a, b)); }
inline Tensor less_equal(const Tensor& a, Number b) { return less_equal(a, number_like(a, b)); }
inline Tensor greater(const Tensor& a, Number b) { return greater(a, number_like(a, b)); }
inline Tensor greater_equal(const Tensor& a, Number b) {
  return greater_equal(a, number_like(a, b));
}
/// a where `condition` (bool) holds, b elsewhere.
WEFT_API Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// `value`, in the dtype of `a`, where `mask` (bool) holds, and a elsewhere.
WEFT_API Tensor masked_fill(const Tensor& a, const Tensor& mask, const Operand& value);

/// Converts to `dtype`; `a` itself if it has it. Floating to integer rounds towards zero.
WEFT_API Tensor cast(const Tensor& a, DType dtype);
/// The same elements in new memory, in the same layout.
WEFT_API Tensor clone(const Tensor& a);
/// `a` itself if its elements are dense in memory, in row-major order; otherwise a copy that is.
WEFT_API Tensor contiguous(const Tensor& a);
/// a limited to [low, high]; a copy without bounds. std::invalid_argument for a number that
/// excludes all values of an integer dtype.
WEFT_API Tensor clip(const Tensor& a, const std::optional<Operand>& low,
                     const std::optional<Operand>& high = {});
/// 1 / a.
WEFT_API Tensor reciprocal(const Tensor& a);
/// `b` as a tensor for an op with `a`: a number becomes a tensor without dims, of the dtype that
/// both promote to, Replicate over the mesh of `a`.
WEFT_API Tensor next_to(const Tensor& a, const Operand& b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, Number b) { return add(a, b); }
inline Tensor operator+(Number a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(const Tensor& a, Number b) { return sub(a, b); }
inline Tensor operator-(Number a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, Number b) { return mul(a, b); }
inline Tensor operator*(Number a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(const Tensor& a, Number b) { return div(a, b); }
inline Tensor operator/(Number a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor operator<(const Tensor& a, const Tensor& b) { return less(a, b); }
inline Tensor operator<(const Tensor& a, Number b) { return less(a, b); }
inline Tensor operator<(Number a, const Tensor& b) { return greater(b, a); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return less_equal(a, b); }
inline Tensor operator<=(const Tensor& a, Number b) { return less_equal(a, b); }
inline Tensor operator<=(Number a, const Tensor& b) { return greater_equal(b, a); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return greater(a, b); }
inline Tensor operator>(const Tensor& a, Number b) { return greater(a, b); }
inline Tensor operator>(Number a, const Tensor& b) { return less(b, a); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return greater_equal(a, b); }
inline Tensor operator>=(const Tensor& a, Number b) { return greater_equal(a, b); }
inline Tensor operator>=(Number a, const Tensor& b) { return less_equal(b, a); }

}  // namespace weft
