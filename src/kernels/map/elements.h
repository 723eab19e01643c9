// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/base/independent.h"
#include "src/base/numeric.h"

namespace weft {

// Loops of a functor over dense elements.

inline namespace WEFT_COMPILER {

/// True for a functor with a member `plain`: the result without branches, so that its loop
/// vectorises, but for rare operands, of which it sets the last argument.
template <class F, class... In>
inline constexpr bool has_rare_operands = requires(const F& f, int& rare, In... in) {
  f.plain(in..., rare);
};

/// result[i] = f(in[i]...), by f.plain for parts without rare operands.
template <class F, class C, class... In>
void map_rare(const F& f, C* result, int64_t n, const In*... in) {
  constexpr int64_t kPart = 64;
  int64_t first = 0;
  for (; first + kPart <= n; first += kPart) {
    C made[kPart];
    int any = 0;
    for (int64_t i = 0; i < kPart; ++i) made[i] = f.plain(in[first + i]..., any);
    if (any) {
      for (int64_t i = 0; i < kPart; ++i) made[i] = f(in[first + i]...);
    }
    for (int64_t i = 0; i < kPart; ++i) result[first + i] = made[i];
  }
  for (; first < n; ++first) result[first] = f(in[first]...);
}

/// result[i] = f(in[i]...). The pointers are arguments because results of one byte may alias any
/// memory, that of an array of pointers too.
template <class Result, class F, class... In>
void map_elements(const F& f, Result* result, int64_t n, const In*... in) {
  if constexpr (has_rare_operands<F, In...>) {
    map_rare(f, result, n, in...);
  } else {
    WEFT_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) result[i] = static_cast<Result>(f(in[i]...));
  }
}

/// Element i of an operand, or its only element.
template <bool kIsOne, class C> C element_of(const C* in, C one, int64_t i) {
  if constexpr (kIsOne) return one;
  return in[i];
}

/// The same where operand kOne is one element.
template <int kOne, int... kIn, class Result, class F, class... In>
void map_repeated_elements(const F& f, Result* result, int64_t n, float one, const In*... in) {
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    result[i] = static_cast<Result>(f(element_of<kIn == kOne>(in, one, i)...));
  }
}

}  // namespace WEFT_COMPILER
}  // namespace weft
