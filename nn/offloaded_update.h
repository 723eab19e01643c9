// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "weft/tensor.h"

namespace weft {

/// An array of one rank that an update reads; where it `changes`, writes too.
struct UpdatedArray {
  Tensor array;
  bool changes;
};

/// Lets arrays of equally many elements, some of which rest in pinned memory of the host, pass
/// through `device` part by part: `work` gets the parts there (one dimension). Two parts are on
/// their way while one is worked on: what comes and what goes have streams of their own. Queued
/// only; `await_offloaded` before the host uses the arrays. std::invalid_argument unless they are
/// dense.
void update_offloaded(Device device, const std::vector<UpdatedArray>& arrays,
                      const std::function<void(const Tensors& parts)>& work);
void await_offloaded(Device device);

}  // namespace weft
