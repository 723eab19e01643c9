// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

/// Sorts rows (the last dim), stable; NaNs count as the greatest. `values` and `indices` (i32 or
/// i64, into the row, plus `offset`) receive the first elements of the sorted row, as many as their
/// last dim; when that is shorter than in's, this is top-k.
void sort_rows(const Block& values, const Block& indices, const Block& in, bool descending = false,
               int64_t offset = 0);

/// The same, for the indices only.
void argsort_rows(const Block& indices, const Block& in, bool descending = false);

}  // namespace weft
