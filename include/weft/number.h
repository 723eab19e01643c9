// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include "weft/dtype.h"

namespace weft {

/// A C++ number as an operand next to a tensor. Its kind takes part in the dtype of the result, its
/// value does not: 2 and 2.0 differ. Integers of 64 bits, with or without sign, are kept exactly.
struct Number {
  enum class Kind : uint8_t { logical, integer, floating, complex };

  constexpr Number() = default;
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr Number(T number)  // NOLINT(google-explicit-constructor)
      : value(static_cast<double>(number)),
        bits(bits_of(number)),
        kind(std::is_same_v<T, bool> ? Kind::logical
             : std::is_integral_v<T> ? Kind::integer
                                     : Kind::floating) {}
  constexpr Number(const std::complex<double>& number)  // NOLINT(google-explicit-constructor)
      : value(number.real()), imaginary(number.imag()), kind(Kind::complex) {}

  /// True when `value` can differ from the integer that the number is.
  constexpr bool is_rounded() const {
    return kind == Kind::integer && !(value > -0x1p53 && value < 0x1p53);
  }

  double value = 0;
  /// 0 unless the kind is complex.
  double imaginary = 0;
  /// The number truncated to an integer, modulo 2^64.
  int64_t bits = 0;
  Kind kind = Kind::integer;

 private:
  template <class T> static constexpr int64_t bits_of(T number) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<int64_t>(number);
    } else if (number >= T(0x1p63)) {
      return number < T(0x1p64) ? static_cast<int64_t>(static_cast<uint64_t>(number)) : 0;
    } else {
      return number >= T(-0x1p63) ? static_cast<int64_t>(number) : 0;
    }
  }
};

/// The dtype of a result of a tensor of `dtype` and a number: the tensor's, but f32 for integers or
/// bool with a floating number, i64 for bool with an integer, and the complex dtype of the tensor's
/// precision with a complex number.
constexpr DType promote(DType dtype, const Number& number) {
  if (number.kind == Number::Kind::complex) return complex_dtype(dtype);
  if (is_floating(dtype)) return dtype;
  if (number.kind == Number::Kind::floating) return DType::f32;
  return dtype == DType::boolean && number.kind == Number::Kind::integer ? DType::i64 : dtype;
}

}  // namespace weft
