// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "nn/offloaded_update.h"

namespace weft {

/// Passes the arrays of several updates, some of which rest on disk, through bounded buffers window
/// by window, and calls `work` with the number of the update and its parts in memory (one
/// dimension). The next window is read and the two before it are written meanwhile. The arrays of
/// an update have equal numbers of elements.
void update_through_memory(const std::vector<std::vector<UpdatedArray>>& updates,
                           const std::function<void(size_t update, const Tensors& parts)>& work);

}  // namespace weft
