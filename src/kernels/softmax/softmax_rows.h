// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/math/reducers.h"
#include "src/kernels/rows/row_kernel.h"

namespace weft {
inline namespace WEFT_COMPILER {

/// Returns x, or 0 when it is infinite: with the max of a row of only -inf, or with a +inf, x - max
/// would be inf - inf.
template <class C> WEFT_FN C finite_or_zero(C x) { return x - x == C(0) || x != x ? x : C(0); }

/// GreatestOf that may pass over a NaN: the sum of exponentials has it.
struct GreatestNumberOf : GreatestOf {
  template <class T> static T combine(T a, T b) { return a > b ? a : b; }
};

/// Statistics of a row for softmax. With a NaN in the row, `sum` is NaN; `max` is finite or NaN.
template <class C> struct SoftmaxRow { C max, sum; };

/// Computes max and the sum of exp(x - max) of a whole row.
template <class C> SoftmaxRow<C> softmax_row(const HostWalk<C>& walk, const C* x) {
  const C max = finite_or_zero(walk.template reduce<GreatestNumberOf>(AsItIs{}, x));
  return {max, walk.template reduce<SumOf>(ExpAbove<C>{max}, x)};
}

/// A result of write_softmax that is nowhere decreased.
using NoTarget = std::integral_constant<int64_t, -1>;

/// y = factor * softmax(x) of row `row`, a whole row if the statistics are null; then decreases
/// y[target] by factor. y may be x.
template <class C, class Target>
void write_softmax(const HostWalk<C>& walk, RowWriter<C>& out, int64_t row, const C* x,
                   const SoftmaxRow<C>* statistics, C factor, Target target) {
  C* y = out.begin(row);
  if (statistics) {
    map_row<C>(walk.size(), ScaledExp<C>{statistics->max, factor / statistics->sum}, y, x);
  } else {
    const C max = finite_or_zero(walk.template reduce<GreatestNumberOf>(AsItIs{}, x));
    map_row<C>(walk.size(), ExpAbove<C>{max}, y, x);
    const C sum = reduce_row<SumOf, C>(walk.size(), AsItIs{}, y);
    map_row<C>(walk.size(), Times<C>{factor / sum}, y, y);
  }
  if (target >= 0 && target < walk.size()) y[target] -= factor;
  out.end();
}

#ifdef WEFT_COMPILES_KERNELS

/// Statistics of a part of a row: its max, and the sum of exp(x - finite_or_zero(max)).
struct SoftmaxOf {
  template <class C>
  WEFT_FN static SoftmaxRow<C> combine(const SoftmaxRow<C>& a, const SoftmaxRow<C>& b) {
    const C max = maximum_of(a.max, b.max), above = finite_or_zero(max);
    return {max, scaled(a, above) + scaled(b, above)};
  }
  /// The max of a part without elements is meaningless.
  template <class C> WEFT_FN static C scaled(const SoftmaxRow<C>& row, C above) {
    return row.sum == C(0) ? C(0) : row.sum * exp(finite_or_zero(row.max) - above);
  }
};

/// The same on a GPU; the row is read once.
template <class Line, class ThreadBlock>
WEFT_DEVICE auto softmax_row(const cuda::DeviceWalk<Line, ThreadBlock>& walk,
                             cuda::HeldLine<Line>& x) {
  using C = typename Line::C;
  SoftmaxRow<C> row{GreatestOf::identity<C>(), C(0)};
  for (int64_t c = walk.block.thread(); c < walk.chunks(); c += walk.block.threads()) {
    const auto values = x.read(c);
    C max = row.max;
    for (const C value : values.element) max = maximum_of(max, value);
    const ExpAbove<C> above{finite_or_zero(max)};
    C sum = SoftmaxOf::scaled(row, above.max);
    for (const C value : values.element) sum = sum + above(value);
    row = {max, sum};
  }
  x.keep();
  row = walk.block.template reduce<SoftmaxOf>(row);
  row.max = finite_or_zero(row.max);
  return row;
}

template <class Line, class ThreadBlock, class C, class Target>
WEFT_DEVICE void write_softmax(const cuda::DeviceWalk<Line, ThreadBlock>& walk, const Rows& out,
                               int64_t row, cuda::HeldLine<Line>& x,
                               const SoftmaxRow<C>* statistics, C factor, Target target) {
  const SoftmaxRow<C> of_row = statistics ? *statistics : softmax_row(walk, x);
  const ScaledExp<C> f{of_row.max, factor / of_row.sum};
  const Line y(out, row);
  for (int64_t c = walk.block.thread(); c < walk.chunks(); c += walk.block.threads()) {
    auto values = cuda::map_chunk(f, x.read(c));
    if constexpr (!std::is_same_v<Target, NoTarget>) {
      const int64_t first = c * Line::kN;
      for (int i = 0; i < Line::kN; ++i) {
        if (first + i == target) values.element[i] = values.element[i] - factor;
      }
    }
    y.write(c, values);
  }
}

#endif

}  // namespace WEFT_COMPILER
}  // namespace weft
