// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "weft/tensor.h"

namespace weft {

/// An array of one rank that an update reads and, if it `changes`, also writes.
struct UpdatedArray {
  Tensor array;
  bool changes;
};

/// Returns elements [begin, begin + count) of a dense local array.
Tensor part_of(const Tensor& array, int64_t begin, int64_t count);

/// Passes arrays with equal numbers of elements, some of which are in pinned host memory, through
/// `device` part by part, and calls `work` with the parts there (one dimension). Two parts are in
/// flight at a time; copies in and out have their own streams. Asynchronous: call `await_offloaded`
/// before the host uses the arrays. std::invalid_argument unless they are dense.
void update_offloaded(Device device, const std::vector<UpdatedArray>& arrays,
                      const std::function<void(const Tensors& parts)>& work);
void await_offloaded(Device device);

/// Passes the arrays of several updates, some of which rest on disk, through bounded buffers window
/// by window, and calls `work` with the number of the update and its parts in memory (one
/// dimension). The next window is read and the two before it are written meanwhile. The arrays of
/// an update have equal numbers of elements.
void update_through_memory(const std::vector<std::vector<UpdatedArray>>& updates,
                           const std::function<void(size_t update, const Tensors& parts)>& work);

}  // namespace weft
