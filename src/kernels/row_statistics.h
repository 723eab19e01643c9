// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/kernels/reducers.h"
#include "src/kernels/row_functors.h"
#include "src/kernels/rows.h"

namespace weft {
inline namespace WEFT_COMPILER {

/// x, or 0 where it is infinite: the max of a row of -inf only, or with a +inf, would give inf -
/// inf.
template <class C>
WEFT_FN C finite_or_zero(C x) {
  return x - x == C(0) || x != x ? x : C(0);
}

/// What softmax needs to know of a row. `max` is finite or NaN.
template <class C>
struct SoftmaxRow {
  C max, sum;
};

/// max and sum of exp(x - max) of a whole row.
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
