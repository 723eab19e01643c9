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

}  // namespace weft
