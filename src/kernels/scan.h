// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

/// out[..., i, ...] = sum of in[..., 0 .. i, ...] along `dim`, after `start` (in's shape without
/// `dim`, or with size 1 there), when given; `reverse` sums from the end. Floats in f64, integers
/// in i64.
void cumulative_sum(const Block& out, const Block& in, int dim, bool reverse = false,
                    const Block* start = nullptr);

}  // namespace weft
