// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/ops/factories.h"
#include "weft/tensor.h"

namespace weft {

// Each function writes over the elements of `a` and returns `a`, whose shape, dtype, layout and
// memory stay. `b` is moved to a's layout and broadcasts to a's shape. A call on tensors that
// require a gradient is recorded, and `a` becomes its result. std::invalid_argument for a leaf that
// requires a gradient, or a view of one, unless NoGrad is in force; for a result that is larger
// than `a`; and for a result that a's dtype cannot take (floating for integers).

WEFT_API const Tensor& add_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& sub_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& mul_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& div_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& pow_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& floor_divide_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& remainder_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& maximum_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& minimum_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& bitwise_and_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& bitwise_or_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& bitwise_xor_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& bitwise_left_shift_(const Tensor& a, const Operand& b);
WEFT_API const Tensor& bitwise_right_shift_(const Tensor& a, const Operand& b);
/// Elements below `low` become `low`, those above `high` become `high`.
WEFT_API const Tensor& clamp_(const Tensor& a, const std::optional<Operand>& low,
                              const std::optional<Operand>& high = {});
/// a += value * b * c, a += value * b / c, and a += weight * (end - a).
WEFT_API const Tensor& addcmul_(const Tensor& a, const Tensor& b, const Tensor& c,
                                Number value = 1);
WEFT_API const Tensor& addcdiv_(const Tensor& a, const Tensor& b, const Tensor& c,
                                Number value = 1);
WEFT_API const Tensor& lerp_(const Tensor& a, const Tensor& end, const Operand& weight);

/// Writes `b` over the elements of `a` that `part_of(a)`, a view, shows. Recorded as the functions
/// above; `b` may be that view itself, changed in place before.
WEFT_API void assign_(const Tensor& a, const std::function<Tensor(const Tensor&)>& part_of,
                      const Operand& b);

WEFT_API const Tensor& neg_(const Tensor& a);
WEFT_API const Tensor& abs_(const Tensor& a);
WEFT_API const Tensor& sign_(const Tensor& a);
WEFT_API const Tensor& square_(const Tensor& a);
WEFT_API const Tensor& relu_(const Tensor& a);
WEFT_API const Tensor& exp_(const Tensor& a);
WEFT_API const Tensor& log_(const Tensor& a);
WEFT_API const Tensor& sqrt_(const Tensor& a);
WEFT_API const Tensor& rsqrt_(const Tensor& a);
WEFT_API const Tensor& tanh_(const Tensor& a);
WEFT_API const Tensor& sigmoid_(const Tensor& a);
WEFT_API const Tensor& silu_(const Tensor& a);
WEFT_API const Tensor& floor_(const Tensor& a);
WEFT_API const Tensor& ceil_(const Tensor& a);
WEFT_API const Tensor& trunc_(const Tensor& a);
WEFT_API const Tensor& round_(const Tensor& a);
inline const Tensor& zero_(const Tensor& a) {
  fill_(a, 0);
  return a;
}

inline const Tensor& operator+=(const Tensor& a, const Operand& b) { return add_(a, b); }
inline const Tensor& operator-=(const Tensor& a, const Operand& b) { return sub_(a, b); }
inline const Tensor& operator*=(const Tensor& a, const Operand& b) { return mul_(a, b); }
inline const Tensor& operator/=(const Tensor& a, const Operand& b) { return div_(a, b); }
inline const Tensor& operator%=(const Tensor& a, const Operand& b) { return remainder_(a, b); }
inline const Tensor& operator&=(const Tensor& a, const Operand& b) { return bitwise_and_(a, b); }
inline const Tensor& operator|=(const Tensor& a, const Operand& b) { return bitwise_or_(a, b); }
inline const Tensor& operator^=(const Tensor& a, const Operand& b) { return bitwise_xor_(a, b); }
inline const Tensor& operator<<=(const Tensor& a, const Operand& b) {
  return bitwise_left_shift_(a, b);
}
inline const Tensor& operator>>=(const Tensor& a, const Operand& b) {
  return bitwise_right_shift_(a, b);
}

}  // namespace weft
