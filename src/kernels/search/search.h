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

inline namespace WEFT_COMPILER {

/// Returns how many of the n sorted elements at(i) the value comes behind.
template <class C, class At>
WEFT_FN int64_t found_place(int64_t n, const At& at, C value, bool right) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const C x = at(middle);
    const bool less = x < value || (x == x && value != value);
    const bool greater = value < x || (value == value && x != x);
    if (right ? !greater : less) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace WEFT_COMPILER
}  // namespace weft
