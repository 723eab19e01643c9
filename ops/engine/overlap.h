// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft {

/// True when writing `written` element by element may change elements of `read` that are not read
/// yet: they share memory, but their elements are not the same ones in the same order.
bool is_disturbed(const MemoryBlock& read, const MemoryBlock& written);

/// Returns a copy of the current elements in separate memory.
Tensor snapshot_of(const MemoryBlock& block);

}  // namespace weft
