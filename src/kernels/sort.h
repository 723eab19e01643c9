// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

/// Sorts rows (the last dim), stable; NaNs count as the greatest. `values` and `indices` (i32 or
/// i64, into the row, plus `offset`) take the first elements of the sorted row, as many as their
/// last dim has: with fewer than in's this is top-k.
void sort_rows(const Block& values, const Block& indices, const Block& in, bool descending = false,
               int64_t offset = 0);

/// The indices alone.
void argsort_rows(const Block& indices, const Block& in, bool descending = false);

}  // namespace weft
