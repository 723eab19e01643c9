// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "weft/error.h"
#include "weft/op.h"
#include "weft/ops/elementwise.h"
#include "weft/sharding.h"

namespace weft {

/// `tensor` as `dtype`, itself when it is that already.
inline Tensor as_dtype(const Tensor& tensor, DType dtype) {
  return tensor.dtype() == dtype ? tensor : cast(tensor, dtype);
}

/// An op of two operands on the dtype that holds both.
inline Tensor call_promoted(const Op& op, const Tensor& a, const Tensor& b) {
  if (!a || !b) fail(op.spec().name, ": no tensor");
  if (a.dtype() == b.dtype()) [[likely]]
    return op({a, b});
  DType dtype = promote(a.dtype(), b.dtype());
  return op({as_dtype(a, dtype), as_dtype(b, dtype)});
}

/// The same for functions of two that have no integer values: integers as f32.
inline Tensor call_promoted_floating(const Op& op, const Tensor& a, const Tensor& b) {
  if (!a || !b) fail(op.spec().name, ": no tensor");
  const DType both = promote(a.dtype(), b.dtype()), dtype = is_floating(both) ? both : DType::f32;
  return op({as_dtype(a, dtype), as_dtype(b, dtype)});
}

/// std::invalid_argument when a whole number is outside of what an integer dtype holds.
inline void check_holds(const char* what, DType dtype, double number) {
  const double least = dtype == DType::u8 ? 0 : dtype == DType::i32 ? -0x1p31 : -0x1p63;
  const double end = dtype == DType::u8 ? 0x1p8 : dtype == DType::i32 ? 0x1p31 : 0x1p63;
  if (number >= least && number < end) return;
  fail(what, ": the number ", number, " is none that a tensor of ", dtype, " holds; cast it first");
}

/// What a C++ number is beside a tensor: it takes the tensor's dtype, but a fraction (or an
/// infinity) makes an integer tensor f32, and any number a bool tensor i64.
inline Tensor for_scalar(const char* what, const Tensor& a, double scalar) {
  if (!a) fail(what, ": no tensor");
  if (is_floating(a.dtype())) [[likely]]
    return a;
  if (scalar != std::trunc(scalar) || std::isinf(scalar)) return cast(a, DType::f32);
  if (a.dtype() == DType::boolean) return cast(a, DType::i64);
  check_holds(what, a.dtype(), scalar);
  return a;
}

/// The same for sums in i64: over ranks a Partial of narrower integers wraps, and one of bool is
/// "any", so it is reduced before it is widened.
inline Tensor reduced_before_widening(const Tensor& a) {
  if (!a || is_floating(a.dtype()) || a.dtype() == DType::i64) return a;
  return a.is_sharded() && a.sharding().has_partial() ? cast(a, DType::i64) : a;
}

/// Integers as f32: for functions that have no integer values.
inline Tensor as_floating(const char* what, const Tensor& a) {
  if (!a) fail(what, ": no tensor");
  return is_floating(a.dtype()) ? a : cast(a, DType::f32);
}

}  // namespace weft
