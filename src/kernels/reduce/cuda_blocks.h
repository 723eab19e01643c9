// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "weft/block.h"
#include "weft/placement.h"

namespace weft::cuda {

/// out = the sources (blocks of out's shape and one dtype) combined element by element in order, +
/// out when `accumulate`. GPU version of reduce_n of src/comm/reduce.h, ordered by the current
/// stream of out's device. `out` may be one of the sources.
void reduce_blocks(ReduceOp op, std::span<const MemoryBlock> sources, const MemoryBlock& out,
                   bool accumulate);

}  // namespace weft::cuda
