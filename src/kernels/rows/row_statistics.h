// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/kernels/math/reducers.h"
#include "src/kernels/rows/row_functors.h"
#include "src/kernels/rows/rows.h"

namespace weft {
inline namespace WEFT_COMPILER {

/// Returns x, or 0 when it is infinite: with the max of a row of only -inf, or with a +inf, x - max
/// would be inf - inf.
template <class C>
WEFT_FN C finite_or_zero(C x) {
  return x - x == C(0) || x != x ? x : C(0);
}

/// Statistics of a row for softmax. `max` is finite or NaN.
template <class C>
struct SoftmaxRow {
  C max, sum;
};

/// Computes max and the sum of exp(x - max) of a whole row.
template <class C>
SoftmaxRow<C> softmax_row(const C* x, int64_t n) {
  const C max = finite_or_zero(reduce_row<GreatestOf, C>(n, AsItIs{}, x));
  return {max, reduce_row<SumOf, C>(n, ExpAbove<C>{max}, x)};
}

/// y = factor * softmax(x) of a whole row; y may be x.
template <class C>
void softmax_of_row(int64_t n, C* y, const C* x, C factor) {
  const C max = finite_or_zero(reduce_row<GreatestOf, C>(n, AsItIs{}, x));
  map_row(n, ExpAbove<C>{max}, y, x);
  const C sum = reduce_row<SumOf, C>(n, AsItIs{}, y);
  map_row(n, Times<C>{factor / sum}, y, y);
}

}  // namespace WEFT_COMPILER
}  // namespace weft
