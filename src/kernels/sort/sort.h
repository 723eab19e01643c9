// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"
#include "src/kernels/rows/rows.h"

namespace weft {

/// The operands of sort_rows as rows, checked; `values` without data when it is null.
struct SortedRows {
  Rows in, values, indices;
  SortedRows(const MemoryBlock* values, const MemoryBlock& indices, const MemoryBlock& in);
};

/// Sorts rows (the last dim), stable; NaNs count as the greatest. `values` (unless null) and
/// `indices` (i32 or i64, into the row, plus `offset`) receive the first elements of the sorted
/// row, as many as their last dim; when that is shorter than in's, this is top-k.
WEFT_KERNEL(void, sort_rows,
            (const MemoryBlock* values, const MemoryBlock& indices, const MemoryBlock& in,
             bool descending = false, int64_t offset = 0),
            (values, indices, in, descending, offset))

}  // namespace weft
