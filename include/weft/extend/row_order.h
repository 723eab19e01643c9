// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/module.h"

namespace weft {

/// Returns why the sums of a module's gradients over ranks cannot have the bits of sums on one
/// rank, and what is expected: {"gradients are reduced in bf16", "f32"}. Empty if they can.
WEFT_API std::pair<std::string, const char*> reduction_obstacle(Module& module);

/// True if the reductions of the gradients add in the binary tree over the numbers of the rows, of
/// which each rank has one, `row`, or none (-1). `rows` is their number, a power of two. False
/// for several rows of a module that was not given to fully_shard. Collective over `ranks`, which
/// have all rows.
WEFT_API bool adds_rows_in_tree(Module& module, const Communicator& ranks, int64_t row,
                                int64_t rows);

}  // namespace weft
