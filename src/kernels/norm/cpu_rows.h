// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <optional>
#include <vector>

#include "src/base/parallel.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/norm/norm.h"
#include "src/kernels/rows/row_functors.h"
#include "src/kernels/rows/rows.h"
#include "weft/error.h"

namespace weft {

/// Which norm: rms_norm is a layer_norm with mean 0. `cut` is null for whole rows.
struct NormRows {
  bool centered;
  double eps;
  const CutRows* cut;
};

inline Rows last_rows(const Block& block) { return Rows(block, block.shape.ndim() - 1); }

inline namespace WEFT_COMPILER {

template <class C>
struct NormRow {
  C mean, rstd;
};

/// Computes the mean and rstd of rows.
template <class C>
class NormStatistics {
 public:
  NormStatistics(const NormRows& norm, const Rows& rows)
      : norm_(norm), n_(rows.size()), size_(static_cast<C>(norm.cut ? norm.cut->size : n_)) {
    if (!norm.cut) return;
    for (int i = 0; i < (norm.centered ? 2 : 1); ++i) {
      sums_[i].emplace(Rows::values("norm", norm.cut->sums[i], rows));
    }
  }

  /// Returns those of row r, whose elements are x.
  NormRow<C> of(const C* x, int64_t r) const {
    const C first = norm_.cut ? RowValues<C>(*sums_[0])[r] : first_sum(x);
    const C mean = norm_.centered ? first / size_ : C(0);
    const C squares = norm_.centered ? second_sum(x, r, mean) : first;
    return {mean, rsqrt(squares / size_ + static_cast<C>(norm_.eps))};
  }
  C size() const { return size_; }

 private:
  C first_sum(const C* x) const {
    return norm_.centered ? reduce_row<SumOf, C>(n_, AsItIs{}, x)
                          : reduce_row<SquaresOf, C>(n_, AsItIs{}, x);
  }
  C second_sum(const C* x, int64_t r, C mean) const {
    return norm_.cut ? RowValues<C>(*sums_[1])[r]
                     : reduce_row<SumOf, C>(n_, CenteredSquare<C>{mean}, x);
  }

  const NormRows& norm_;
  int64_t n_;
  C size_;
  std::optional<Rows> sums_[2];
};

/// Returns a weight or bias as dense C; all `absent` when the block has no data.
template <class C>
std::vector<C> norm_vector(const char* what, const Block& block, int64_t n, C absent) {
  std::vector<C> values(static_cast<size_t>(n), absent);
  if (!block.data) return values;
  if (block.shape.ndim() != 1 || block.shape[0] != n) {
    fail(what, " is ", block.shape, "; rows have ", n, " elements");
  }
  load_line(values.data(), {block.dtype, block.data, block.strides[0]}, n);
  return values;
}

}  // namespace WEFT_COMPILER
}  // namespace weft
