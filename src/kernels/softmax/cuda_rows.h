// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/rows/device_rows.h"
#include "src/kernels/rows/row_statistics.h"

namespace weft::cuda {

inline namespace WEFT_COMPILER {

/// Statistics of a part of a row: its max, and the sum of exp(x - finite_or_zero(max)).
struct SoftmaxOf {
  template <class C>
  WEFT_FN static SoftmaxRow<C> combine(const SoftmaxRow<C>& a, const SoftmaxRow<C>& b) {
    const C max = maximum_of(a.max, b.max), above = finite_or_zero(max);
    return {max, scaled(a, above) + scaled(b, above)};
  }
  /// The max of a part without elements is meaningless.
  template <class C>
  WEFT_FN static C scaled(const SoftmaxRow<C>& row, C above) {
    return row.sum == C(0) ? C(0) : row.sum * exp(finite_or_zero(row.max) - above);
  }
};

/// Returns max (finite or NaN) and sum of exp(x - max) of a whole row, which is read once.
template <class Team, class Line>
WEFT_DEVICE auto softmax_row_of(const Team& team, int64_t chunks, Line& line) {
  using C = std::remove_cvref_t<decltype(line.read(0).element[0])>;
  SoftmaxRow<C> row{GreatestOf::identity<C>(), C(0)};
  for (int64_t c = team.thread(); c < chunks; c += team.threads()) {
    const auto values = line.read(c);
    C max = row.max;
    for (const C x : values.element) max = maximum_of(max, x);
    const ExpAbove<C> above{finite_or_zero(max)};
    C sum = SoftmaxOf::scaled(row, above.max);
    for (const C x : values.element) sum = sum + above(x);
    row = {max, sum};
  }
  line.keep();
  row = team.template reduce<SoftmaxOf>(row);
  row.max = finite_or_zero(row.max);
  return row;
}

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda
