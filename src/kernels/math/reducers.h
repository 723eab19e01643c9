// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <type_traits>

#include "src/kernels/math/math.h"

namespace weft {

inline namespace WEFT_COMPILER {

/// The greater of two values; NaN when either is NaN.
template <class T> [[gnu::always_inline]] WEFT_FN inline T maximum_of(T a, T b) {
  return a > b || a != a ? a : b;
}

/// The lesser of two values; NaN when either is NaN.
template <class T> [[gnu::always_inline]] WEFT_FN inline T minimum_of(T a, T b) {
  return a < b || a != a ? a : b;
}

}  // namespace WEFT_COMPILER

// Scalar reductions: the result for no elements, the value of an element, and the combination of
// two values.

struct SumOf {
  static constexpr int kTimesLanes = 1;
  template <class T> WEFT_FN static constexpr T identity() { return T(0); }
  template <class T> WEFT_FN static T element(T x) { return x; }
  template <class T> WEFT_FN static T combine(T a, T b) {
    // Integers wrap.
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return a + b;
    }
  }
};

struct SquaresOf : SumOf {
  template <class T> WEFT_FN static T element(T x) { return x * x; }
};

/// The sum without NaNs.
struct NumbersOf : SumOf {
  template <class T> WEFT_FN static T element(T x) { return x == x ? x : T(0); }
};

struct ProductOf : SumOf {
  static constexpr int kTimesLanes = 2;
  template <class T> WEFT_FN static constexpr T identity() { return T(1); }
  template <class T> WEFT_FN static T combine(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

/// log(exp(a) + exp(b)), for floats.
struct LogAddExpOf : SumOf {
  template <class T> WEFT_FN static constexpr T identity() {
    return -std::numeric_limits<T>::infinity();
  }
  template <class T> WEFT_FN static T combine(T a, T b) {
    // log1p(e) for 0 <= e <= 1; equal infinities count as difference 0.
    const T e = exp(-(a == b ? T(0) : abs(a - b))), sum = T(1) + e;
    return (a > b ? a : b) + (log(sum) + (e - (sum - T(1))) / sum);
  }
};

struct GreatestOf : SumOf {
  /// Accumulators of a row, as a multiple of those of a sum: these combine in more steps.
  static constexpr int kTimesLanes = 4;
  template <class T> WEFT_FN static constexpr T identity() {
    if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::lowest();
  }
  template <class T> WEFT_FN static T combine(T a, T b) { return maximum_of(a, b); }
};

struct LeastOf : SumOf {
  static constexpr int kTimesLanes = 4;
  template <class T> WEFT_FN static constexpr T identity() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::max();
  }
  template <class T> WEFT_FN static T combine(T a, T b) { return minimum_of(a, b); }
};

/// Any is the maximum of zeros and ones, all is the minimum.
struct AnyOf : SumOf {
  template <class T> WEFT_FN static T element(T x) { return x != T(0) ? T(1) : T(0); }
  template <class T> WEFT_FN static T combine(T a, T b) { return a > b ? a : b; }
};

struct AllOf : AnyOf {
  template <class T> WEFT_FN static constexpr T identity() { return T(1); }
  template <class T> WEFT_FN static T combine(T a, T b) { return a < b ? a : b; }
};

}  // namespace weft
