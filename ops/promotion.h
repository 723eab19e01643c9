// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/number.h"
#include "weft/ops/elementwise.h"
#include "weft/sharding.h"

namespace weft {

/// Returns `tensor` as `dtype`; itself if it has that dtype.
inline Tensor as_dtype(const Tensor& tensor, DType dtype) {
  return tensor.dtype() == dtype ? tensor : cast(tensor, dtype);
}

/// Calls an op of two operands in the dtype that both promote to.
inline Tensor call_promoted(const Op& op, const Tensor& a, const Tensor& b) {
  if (!a || !b) fail(op.spec().name, ": no tensor is given, expected one");
  if (a.dtype() == b.dtype()) [[likely]]
    return op({a, b});
  DType dtype = promote(a.dtype(), b.dtype());
  return op({as_dtype(a, dtype), as_dtype(b, dtype)});
}

/// The same for functions that are not defined on integers, which become f32.
inline Tensor call_promoted_floating(const Op& op, const Tensor& a, const Tensor& b) {
  if (!a || !b) fail(op.spec().name, ": no tensor is given, expected one");
  const DType both = promote(a.dtype(), b.dtype()), dtype = is_floating(both) ? both : DType::f32;
  return op({as_dtype(a, dtype), as_dtype(b, dtype)});
}

/// The values of an integer dtype: `least` to below `end`.
struct IntegerRange {
  double least, end;
};
inline IntegerRange range_of(DType dtype) {
  if (dtype == DType::u8) return {0, 0x1p8};
  return dtype == DType::i32 ? IntegerRange{-0x1p31, 0x1p31} : IntegerRange{-0x1p63, 0x1p63};
}

/// Throws std::invalid_argument when a whole number is outside the range of an integer dtype.
inline void check_holds(const char* what, DType dtype, double number) {
  if (dtype == DType::boolean) return;
  const auto [least, end] = range_of(dtype);
  if (number >= least && number < end) return;
  fail(what, ": number is ", number, ", expected one that ", dtype,
       " holds; cast the tensor first");
}

/// Casts a tensor to the dtype that it and the number promote to.
inline Tensor for_scalar(const char* what, const Tensor& a, Number scalar) {
  if (!a) fail(what, ": no tensor is given, expected one");
  if (is_floating(a.dtype())) [[likely]]
    return a;
  const DType dtype = promote(a.dtype(), scalar);
  if (!is_floating(dtype)) check_holds(what, dtype, scalar.value);
  return as_dtype(a, dtype);
}

/// Prepares an operand of a sum in i64. Reducing a Partial of narrower integers over ranks wraps,
/// and reducing one of bool is "any", so it is reduced before it is widened.
inline Tensor reduced_before_widening(const Tensor& a) {
  if (!a || is_floating(a.dtype()) || a.dtype() == DType::i64) return a;
  return a.is_sharded() && a.sharding().has_partial() ? cast(a, DType::i64) : a;
}

/// Casts integers to f32, for functions that are not defined on them.
inline Tensor as_floating(const char* what, const Tensor& a) {
  if (!a) fail(what, ": no tensor is given, expected one");
  return is_floating(a.dtype()) ? a : cast(a, DType::f32);
}

}  // namespace weft
