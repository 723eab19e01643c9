// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "src/base/half.h"

namespace weft {

/// An element of c64 or c128. Not std::complex, whose product calls a library function for
/// infinities, and which kernels for GPUs cannot use.
template <class R> struct Complex {
  R re, im;

  Complex() = default;
  WEFT_FN constexpr Complex(R real, R imaginary) : re(real), im(imaginary) {}
  template <class X>
  requires std::is_arithmetic_v<X> WEFT_FN constexpr explicit Complex(X x)
      : re(static_cast<R>(x)), im(0) {}

  WEFT_FN constexpr Complex operator-() const { return {-re, -im}; }
  WEFT_FN constexpr Complex operator+(Complex b) const { return {re + b.re, im + b.im}; }
  WEFT_FN constexpr Complex operator-(Complex b) const { return {re - b.re, im - b.im}; }
  WEFT_FN constexpr Complex operator*(Complex b) const {
    return {re * b.re - im * b.im, re * b.im + im * b.re};
  }
  WEFT_FN constexpr Complex operator*(R b) const { return {re * b, im * b}; }
  /// Divides by the greater part first (Smith, 1962), so that squares do not overflow; a division
  /// by zero gives infinities or NaN, part by part.
  WEFT_FN constexpr Complex operator/(Complex b) const {
    const R real = b.re < 0 ? -b.re : b.re, imaginary = b.im < 0 ? -b.im : b.im;
    if (real == 0 && imaginary == 0) return {re / real, im / real};
    if (real >= imaginary) {
      const R ratio = b.im / b.re, scale = b.re + b.im * ratio;
      return {(re + im * ratio) / scale, (im - re * ratio) / scale};
    }
    const R ratio = b.re / b.im, scale = b.re * ratio + b.im;
    return {(re * ratio + im) / scale, (im * ratio - re) / scale};
  }
  WEFT_FN constexpr Complex& operator+=(Complex b) { return *this = *this + b; }
  WEFT_FN constexpr bool operator==(const Complex&) const = default;
};

template <class T> inline constexpr bool is_complex_type = false;
template <class R> inline constexpr bool is_complex_type<Complex<R>> = true;

}  // namespace weft
