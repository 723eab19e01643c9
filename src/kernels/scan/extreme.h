// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/math/reducers.h"
#include "src/kernels/rows/rows.h"
#include "src/kernels/scan/scan.h"

namespace weft {

/// The operands of cumulative_extreme as rows, checked.
struct ExtremeRows {
  Rows in, values, indices, numbers, start, start_index;

  ExtremeRows(const MemoryBlock& values_block, const MemoryBlock& indices_block,
              const MemoryBlock& in_block, const ExtremeScan& scan)
      : in(in_block, scan.dim), values(values_block, scan.dim), indices(indices_block, scan.dim) {
    check_rows("cumulative_extreme", in, values);
    check_rows("cumulative_extreme", in, indices);
    if (scan.numbers) numbers = Rows(*scan.numbers, scan.dim);
    if (!scan.start) return;
    start = Rows::values("cumulative_extreme", *scan.start, in);
    start_index = Rows::values("cumulative_extreme", *scan.start_index, in);
  }
};

/// The extreme of the elements so far; none when the index is negative.
template <class C> struct Extreme {
  C value;
  int64_t index;

  WEFT_FN Extreme with(const Extreme& next, bool greatest) const {
    if (next.index < 0) return *this;
    if (index < 0 || next.value != next.value) return next;
    if (value != value) return *this;
    return (greatest ? next.value >= value : next.value <= value) ? next : *this;
  }
};

}  // namespace weft
