// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"

namespace weft {

/// out = in, with zeros above diagonal `diagonal` of the last two dims, or below it when `upper`.
/// Element (i, j) is on diagonal j - i; the block's first element is element (`row`, `column`).
WEFT_KERNEL(void, copy_triangle,
            (const MemoryBlock& out, const MemoryBlock& in, bool upper, int64_t diagonal,
             int64_t row, int64_t column),
            (out, in, upper, diagonal, row, column))

}  // namespace weft
