// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "weft/number.h"
#include "weft/tensor.h"

namespace weft {

/// A tensor, or a number as an operand next to one.
struct Operand {
  Operand() = default;
  Operand(const Tensor& given)  // NOLINT(google-explicit-constructor)
      : tensor(given), is_tensor(true) {}
  Operand(const Number& given) : number(given) {}  // NOLINT(google-explicit-constructor)
  template <class T>
  requires std::is_arithmetic_v<T> Operand(T given)
      : number(given) {}  // NOLINT(google-explicit-constructor)
  bool is_number() const { return !is_tensor; }

  Tensor tensor;
  Number number;
  bool is_tensor = false;
};

}  // namespace weft
