// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"

namespace weft {

/// out[...] = the sum over i of a[..., i] * b[..., i], of dense blocks of one dtype, f32 or f64.
/// Products are added in blocks whose sums do not depend on the number of threads.
void dot_rows(const MemoryBlock& out, const MemoryBlock& a, const MemoryBlock& b);

}  // namespace weft
