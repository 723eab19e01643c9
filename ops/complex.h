// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/promotion.h"
#include "weft/extend/op.h"
#include "weft/ops/complex.h"

namespace weft {

inline bool is_complex(const Tensor& a) { return a && is_complex(a.dtype()); }

/// The function of the op of that name for a complex tensor; by the op itself, which refuses it,
/// where it has none.
Tensor complex_function(const Op& op, const Tensor& a);

/// Calls a function of one number, as f32 for integers.
inline Tensor function_of(const Op& op, const Tensor& a) {
  if (is_complex(a)) return complex_function(op, a);
  return op({as_floating(op.spec().name.c_str(), a)});
}

/// Returns whether a number is real and equal to `value`.
inline bool is_real(const Number& number, double value) {
  return number.kind != Number::Kind::complex && number.value == value;
}

/// The angles of complex numbers, in [-pi, pi].
Tensor complex_angle(const Tensor& a);

/// a^b of complex tensors of one dtype.
Tensor complex_power(const Tensor& a, const Tensor& b);

/// The sum of squares of the parts of a complex tensor: real.
Tensor squared_magnitude(const Tensor& a);

}  // namespace weft
