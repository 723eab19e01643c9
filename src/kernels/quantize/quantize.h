// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"
#include "weft/extend/quantize.h"

namespace weft {

/// See weft/extend/quantize.h. The arguments fit one another.
WEFT_KERNEL(void, quantize_blocks,
            (const MemoryBlock& codes, const MemoryBlock& scales, const MemoryBlock& in,
             const MemoryBlock& residual, int64_t block, const CodeRounding& rounding),
            (codes, scales, in, residual, block, rounding))

WEFT_KERNEL(void, dequantize_blocks,
            (const MemoryBlock& out, const MemoryBlock& codes, const MemoryBlock& scales,
             int64_t block, bool accumulate),
            (out, codes, scales, block, accumulate))

}  // namespace weft
