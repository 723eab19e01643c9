// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/math/reducers.h"
#include "src/kernels/rows/row_kernel.h"

namespace weft {
inline namespace WEFT_COMPILER {

/// Returns x, or 0 when it is infinite: with the max of a row of only -inf, or with a +inf, x - max
/// would be inf - inf.
template <class C> WEFT_FN C finite_or_zero(C x) { return x - x == C(0) || x != x ? x : C(0); }

/// Returns x, or NaN when it is infinite.
template <class C> WEFT_FN C finite_or_nan(C x) { return x + (x - x); }

/// GreatestOf that may pass over a NaN: the sum of exponentials has it.
struct GreatestNumberOf : GreatestOf {
  template <class T> WEFT_FN static T combine(T a, T b) {
#ifdef __CUDA_ARCH__
    return ::fmax(a, b);
#else
    return a > b ? a : b;
#endif
  }
};

/// Statistics of a row for softmax. With a NaN in the row, `sum` is NaN; `max` is finite or NaN.
/// With a +inf, `sum` is infinite, and the row's softmax is NaN.
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
    map_row<C>(walk.size(), ScaledExp<C>{statistics->max, factor / finite_or_nan(statistics->sum)},
               y, x);
  } else {
    const C max = finite_or_zero(walk.template reduce<GreatestNumberOf>(AsItIs{}, x));
    map_row<C>(walk.size(), ExpAbove<C>{max}, y, x);
    const C sum = reduce_row<SumOf, C>(walk.size(), AsItIs{}, y);
    map_row<C>(walk.size(), Times<C>{factor / finite_or_nan(sum)}, y, y);
  }
  if (target >= 0 && target < walk.size()) y[target] -= factor;
  out.end();
}

#ifdef WEFT_COMPILES_KERNELS

/// The sum of a part of a row when `above` is subtracted instead of the part's max, which is
/// meaningless in a part without elements.
template <class C> WEFT_DEVICE C scaled_sum(const SoftmaxRow<C>& part, C above) {
  return part.sum == C(0) ? C(0) : part.sum * exp(finite_or_zero(part.max) - above);
}

/// Adds chunks to the statistics of a part of a row.
template <class C, class Values, size_t kChunks>
WEFT_DEVICE void add_chunks(SoftmaxRow<C>& part, const Values (&chunks)[kChunks]) {
  C max = part.max;
  for (const Values& values : chunks) {
    for (const C value : values.element) max = GreatestNumberOf::combine(value, max);
  }
  const ExpAbove<C> above{finite_or_zero(max)};
  C sum = scaled_sum(part, above.max);
  for (const Values& values : chunks) {
    for (const C value : values.element) sum = sum + above(value);
  }
  part = {max, sum};
}

/// The same on a GPU; the row is read once, with several loads in flight.
template <class Line, class ThreadBlock>
WEFT_DEVICE auto softmax_row(const cuda::DeviceWalk<Line, ThreadBlock>& walk,
                             cuda::HeldLine<Line>& x) {
  using C = typename Line::C;
  constexpr int kBatch = Line::kN > 4 ? 2 : 4;
  const int64_t threads = walk.block.threads(), chunks = walk.chunks();
  SoftmaxRow<C> part{GreatestOf::identity<C>(), C(0)};
  int64_t c = walk.block.thread();
  for (; c + (kBatch - 1) * threads < chunks; c += kBatch * threads) {
    typename Line::Values batch[kBatch];
    x.read(c, threads, batch);
    add_chunks(part, batch);
  }
  for (; c < chunks; c += threads) {
    const typename Line::Values one[] = {x.read(c)};
    add_chunks(part, one);
  }
  x.keep();
  const C max = finite_or_zero(walk.block.template reduce<GreatestNumberOf>(part.max));
  return SoftmaxRow<C>{max, walk.block.template reduce<SumOf>(scaled_sum(part, max))};
}

template <class Line, class ThreadBlock, class C, class Target>
WEFT_DEVICE void write_softmax(const cuda::DeviceWalk<Line, ThreadBlock>& walk, const Rows& out,
                               int64_t row, cuda::HeldLine<Line>& x,
                               const SoftmaxRow<C>* statistics, C factor, Target target) {
  const SoftmaxRow<C> of_row = statistics ? *statistics : softmax_row(walk, x);
  const ScaledExp<C> f{of_row.max, factor / finite_or_nan(of_row.sum)};
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
