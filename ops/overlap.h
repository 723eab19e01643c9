// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft {

/// True when writing `written` element by element may change elements of `read` that are not read
/// yet: they share memory, and an element of one is not the same one of the other.
bool is_disturbed(const Block& read, const Block& written);

/// The elements as they are now, in memory of their own.
Tensor snapshot_of(const Block& block);

}  // namespace weft
