// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "weft/error.h"
#include "weft/op.h"
#include "weft/ops/elementwise.h"

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

/// What a C++ number is beside a tensor: it takes the tensor's dtype, but a fraction makes an
/// integer tensor f32, and any number a bool tensor i64.
inline Tensor for_scalar(const char* what, const Tensor& a, double scalar) {
  if (!a) fail(what, ": no tensor");
  if (is_floating(a.dtype())) [[likely]]
    return a;
  if (scalar != std::trunc(scalar)) return cast(a, DType::f32);
  return a.dtype() == DType::boolean ? cast(a, DType::i64) : a;
}

/// Integers as f32: for functions that have no integer values.
inline Tensor as_floating(const char* what, const Tensor& a) {
  if (!a) fail(what, ": no tensor");
  return is_floating(a.dtype()) ? a : cast(a, DType::f32);
}

}  // namespace weft
