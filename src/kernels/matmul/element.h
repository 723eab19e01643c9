// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/base/numeric.h"

namespace weft {

/// The type that products of T are computed in: float for halves; 32 bits for integers of 16, which
/// keep the lower bits.
template <class T>
using Computed = std::conditional_t<is_half<T>, float,
                                    std::conditional_t<std::is_same_v<T, uint16_t>, uint32_t, T>>;

template <class To, class From> To element_as(From x) {
  return static_cast<To>(static_cast<Computed<To>>(static_cast<Computed<From>>(x)));
}

/// Converts a scale factor to T.
template <class T> T factor_as(double x) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<int64_t>(x));
  return static_cast<T>(x);
}

/// Calls visitor(Type<T>{}) with T the type that represents `dtype` in products: unsigned, so that
/// integers wrap.
template <class Visitor> decltype(auto) visit_element(DType dtype, const Visitor& visitor) {
  if (dtype == DType::boolean) fail("gemm: dtype is ", dtype, ", expected a number");
  return visit_bits(dtype, visitor);
}

}  // namespace weft
