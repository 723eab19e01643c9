// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>
#include <limits>

#include "src/kernels/math/math.h"

namespace weft {

inline namespace WEFT_COMPILER {

/// std::fmod(a, b) without branches. The truncated quotient is right or one too large, so that one
/// fused operation gives the rest; sets `rare` for other operands: quotients that are no exact
/// integers, infinities, NaN and b = 0.
template <std::floating_point T>
[[gnu::always_inline]] WEFT_FN inline T plain_rest(T a, T b, int& rare) {
  constexpr T kMost = T(int64_t{1} << (std::numeric_limits<T>::digits - 2));
  const T x = std::fabs(a), y = std::fabs(b);
  const T quotient = std::trunc(x / y);
  rare |= !((quotient < kMost) & (y < std::numeric_limits<T>::infinity()));
  const T rest = std::fma(-quotient, y, x);
  return std::copysign(rest < T(0) ? rest + y : rest, a);
}

}  // namespace WEFT_COMPILER
}  // namespace weft
