// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "src/kernels/kernel.h"

namespace weft {

/// out[..., :] = table[ids[...] - offset, :]; zeros where the table does not have that row. ids are
/// i32 or i64.
WEFT_KERNEL(void, gather_rows,
            (const MemoryBlock& out, const MemoryBlock& table, const MemoryBlock& ids,
             int64_t offset = 0),
            (out, table, ids, offset))

/// table[ids[...] - offset, :] += rows[..., :], in the order of the ids. Skips ids whose rows the
/// table does not have, and the id `skipped`. The table starts from zeros unless `accumulate`. Bits
/// do not depend on the number of threads.
WEFT_KERNEL(void, scatter_add_rows,
            (const MemoryBlock& table, const MemoryBlock& rows, const MemoryBlock& ids,
             int64_t offset = 0, bool accumulate = false, std::optional<int64_t> skipped = {}),
            (table, rows, ids, offset, accumulate, skipped))

}  // namespace weft
