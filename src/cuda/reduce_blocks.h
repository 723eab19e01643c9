// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "weft/block.h"
#include "weft/placement.h"

namespace weft::cuda {

/// out = the sources, blocks of out's shape and one dtype, combined element by element in their
/// order, + out when `accumulate`: reduce_n of src/comm/reduce.h where they lie on GPUs, in the
/// order of out's current stream. `out` may be one of them.
void reduce_blocks(ReduceOp op, std::span<const Block> sources, const Block& out, bool accumulate);

}  // namespace weft::cuda
