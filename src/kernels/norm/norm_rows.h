// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/math/reducers.h"
#include "src/kernels/norm/norm.h"
#include "src/kernels/rows/row_kernel.h"

namespace weft {

template <class C> struct NormRow { C mean, rstd; };

/// Inputs from which kernels compute the mean and rstd of a row.
struct NormStatistics {
  bool centered, cut;
  double eps;
  /// The size of whole rows.
  int64_t size;
  Rows sums[2];

  NormStatistics(const Norm& norm, const Rows& rows)
      : centered(norm.centered),
        cut(norm.is_cut()),
        eps(norm.eps),
        size(cut ? norm.whole_size : rows.size()) {
    for (int i = 0; cut && i < (centered ? 2 : 1); ++i) {
      sums[i] = Rows::values("norm", norm.sums[i], rows);
    }
  }

  /// Returns those of row r, which is `x`; all threads of a block must call it.
  template <class Walk, class Row, class C = typename Walk::C>
  WEFT_FN NormRow<C> of(const Walk& walk, Row& x, int64_t r) const {
    const C whole = static_cast<C>(size);
    C mean = C(0), squares = C(0);
    if (centered) {
      const C sum = cut ? value_of<C>(sums[0], r) : walk.template reduce<SumOf>(AsItIs{}, x);
      mean = sum / whole;
      squares =
          cut ? value_of<C>(sums[1], r) : walk.template reduce<SumOf>(CenteredSquare<C>{mean}, x);
    } else {
      squares = cut ? value_of<C>(sums[0], r) : walk.template reduce<SquaresOf>(AsItIs{}, x);
    }
    return {mean, rsqrt(squares / whole + static_cast<C>(eps))};
  }
};

/// The operands of a norm's backward, as rows.
struct NormBackwardRows {
  NormStatistics norm;
  Rows x, dy, dx, weight, given_sum, given_dot;

  /// Returns means over row r that its gradient needs: of dy * weight, and of dy * weight * xhat.
  template <class Walk, class Row, class Weight, class C = typename Walk::C>
  WEFT_FN NormGradient<C> gradient(const Walk& walk, Row& in, Row& upper, const Weight& w,
                                   int64_t r) const {
    const NormRow<C> row = norm.of(walk, in, r);
    NormGradient<C> f{row.mean, row.rstd, C(0), C(0)};
    const C whole = static_cast<C>(norm.size);
    if (norm.centered) {
      f.sum = (norm.cut ? value_of<C>(given_sum, r)
                        : walk.template reduce<SumOf>(ProductOfTwo<C>{}, upper, w)) /
              whole;
    }
    if (norm.cut) {
      // norm_sums omits rstd, so that it does not need the sum of squares first.
      f.dot = value_of<C>(given_dot, r) * (norm.centered ? C(1) : row.rstd) / whole;
    } else {
      const NormDot<C> g{row.mean, row.rstd};
      f.dot = walk.template reduce<SumOf>(g, upper, w, in) / whole;
    }
    return f;
  }
};

/// Computes dx, and the gradients of weight and bias, of which the latter may be null; `x` tells
/// the device.
WEFT_KERNEL(void, norm_backward,
            (const NormBackwardRows& rows, const MemoryBlock& x, const MemoryBlock& dweight,
             const MemoryBlock* dbias, bool accumulate),
            (rows, x, dweight, dbias, accumulate))

}  // namespace weft
