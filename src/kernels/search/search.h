// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"
#include "src/kernels/rows/rows.h"

namespace weft {

/// The operands of search_sorted: sorted rows, and values one by one; checked.
struct SearchedRows {
  Rows sorted, values, out;
  /// Values of one row of `sorted`.
  int64_t values_of_row;
  SearchedRows(const MemoryBlock& out, const MemoryBlock& sorted, const MemoryBlock& values);
};

/// out = how many elements of the sorted row are less than the value, or (`right`) not greater; NaN
/// is the greatest. `sorted` [n] has one row for all values; otherwise its dims but the last are
/// those of `values`. Both have one dtype; out is i64.
WEFT_KERNEL(void, search_sorted,
            (const MemoryBlock& out, const MemoryBlock& sorted, const MemoryBlock& values,
             bool right),
            (out, sorted, values, right))

/// out [k] (i64) = the indices of the elements of `mask` (bool [n], n >= k) that are true, of which
/// there are at most k, then zeros. Both are dense.
WEFT_KERNEL(void, true_places, (const MemoryBlock& out, const MemoryBlock& mask), (out, mask))

inline namespace WEFT_COMPILER {

/// Finds how many of the n sorted elements at(i) each of kN values comes behind. Without branches
/// on the values, which no processor predicts.
template <bool kRight, int kN, class C, class At>
WEFT_FN void find_places(int64_t n, const At& at, const C* values, int64_t* places) {
  const auto is_behind = [](C value, C x) {
    if (kRight) return (x <= value) | (value != value);
    return (x < value) | ((x == x) & (value != value));
  };
  for (int j = 0; j < kN; ++j) places[j] = 0;
  for (; n > 1; n -= n / 2) {
    const int64_t half = n / 2;
    for (int j = 0; j < kN; ++j) {
      places[j] += half & -int64_t{is_behind(values[j], at(places[j] + half - 1))};
    }
  }
  if (n == 0) return;
  for (int j = 0; j < kN; ++j) places[j] += is_behind(values[j], at(places[j])) ? 1 : 0;
}

}  // namespace WEFT_COMPILER
}  // namespace weft
