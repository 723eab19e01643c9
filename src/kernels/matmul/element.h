// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/base/numeric.h"

namespace weft {

/// The type that products of T are computed in: float for halves; unsigned, so that integers wrap.
template <class T>
using Computed = std::conditional_t<is_half<T>, float, T>;

template <class To, class From>
To element_as(From x) {
  return static_cast<To>(static_cast<Computed<To>>(static_cast<Computed<From>>(x)));
}

/// Converts a scale factor to T.
template <class T>
T factor_as(double x) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<int64_t>(x));
  return static_cast<T>(x);
}

/// Calls visitor(Type<T>{}) with T the type that represents `dtype` in products.
template <class Visitor>
decltype(auto) visit_element(DType dtype, const Visitor& visitor) {
  switch (dtype) {
    case DType::i32:
      return visitor(Type<uint32_t>{});
    case DType::i64:
      return visitor(Type<uint64_t>{});
    case DType::u8:
      return visitor(Type<uint8_t>{});
    case DType::boolean:
      fail("gemm: dtype is ", dtype, ", expected a number");
    default:
      return visit_floating("gemm", dtype, visitor);
  }
}

}  // namespace weft
