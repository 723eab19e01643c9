// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/norm/cpu_rows.h"
#include "src/kernels/rows/device_rows.h"

namespace weft::cuda {

/// A weight or bias; without data when the norm has none.
inline RowSide norm_vector_side(const char* what, const Block& block, int64_t n) {
  if (!block.data) return {};
  if (block.shape.ndim() != 1 || block.shape[0] != n) {
    fail(what, " is ", block.shape, "; rows have ", n, " elements");
  }
  return RowSide(block, 0);
}

inline RowSide norm_side(const Block& block) { return RowSide(block, block.shape.ndim() - 1); }

/// Inputs from which kernels compute the statistics of a row.
struct NormStatisticsSide {
  bool centered, cut;
  double eps;
  /// The size of whole rows.
  int64_t size;
  RowSide sums[2];

  NormStatisticsSide(const NormRows& norm, const Rows& rows)
      : centered(norm.centered),
        cut(norm.cut != nullptr),
        eps(norm.eps),
        size(norm.cut ? norm.cut->size : rows.size()) {
    if (!norm.cut) return;
    for (int i = 0; i < (centered ? 2 : 1); ++i) {
      sums[i] = value_side("norm", norm.cut->sums[i], rows);
    }
  }

  /// Returns those of row r, which is `x`; all threads of the block must call it.
  template <class C, class Team, class Line>
  WEFT_DEVICE NormRow<C> of(const Team& team, int64_t chunks, Line& x, int64_t r) const {
    const C whole = static_cast<C>(size);
    C mean = C(0), squares = C(0);
    if (centered) {
      const C sum = cut ? value_of<C>(sums[0], r) : reduce_line<SumOf>(team, chunks, AsItIs{}, x);
      mean = sum / whole;
      squares = cut ? value_of<C>(sums[1], r)
                    : reduce_line<SumOf>(team, chunks, CenteredSquare<C>{mean}, x);
    } else {
      squares = cut ? value_of<C>(sums[0], r) : reduce_line<SquaresOf>(team, chunks, AsItIs{}, x);
    }
    return {mean, rsqrt(squares / whole + static_cast<C>(eps))};
  }
};

}  // namespace weft::cuda
