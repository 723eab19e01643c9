// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"
#include "src/kernels/rows/rows.h"

namespace weft {

/// out[..., :] = table[ids[...] - offset, :]; zeros where the table does not have that row. ids are
/// i32 or i64.
WEFT_KERNEL(void, gather_rows,
            (const MemoryBlock& out, const MemoryBlock& table, const MemoryBlock& ids,
             int64_t offset = 0),
            (out, table, ids, offset))

/// table[ids[...] - offset, :] += rows[..., :], in the order of the ids. Skips ids whose rows the
/// table does not have. The table starts from zeros unless `accumulate`. Bits do not depend on the
/// number of threads.
WEFT_KERNEL(void, scatter_add_rows,
            (const MemoryBlock& table, const MemoryBlock& rows, const MemoryBlock& ids,
             int64_t offset = 0, bool accumulate = false),
            (table, rows, ids, offset, accumulate))

/// The operands of both: rows of a table that ids select, and a row for each id; checked.
struct SelectedRows {
  Rows rows, table, ids;
  int64_t offset;
  SelectedRows(const MemoryBlock& rows, const MemoryBlock& table, const MemoryBlock& ids,
               int64_t offset);
  /// Returns the row of the table that id `r` selects; -1 when the table does not have it.
  WEFT_FN int64_t index(int64_t r) const {
    const int64_t index = value_of<int64_t>(ids, r) - offset;
    return index >= 0 && index < table.count() ? index : -1;
  }
};

}  // namespace weft
