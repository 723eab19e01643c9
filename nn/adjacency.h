// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "weft/tensor.h"

namespace weft {

/// Indices of tensors, in the order of their memory.
using Run = std::vector<size_t>;

/// True when the local elements of `tensors` at each place of `run` follow those at the place
/// before.
bool is_adjacent(const Tensors& tensors, const Run& run);

/// Splits the tensors `of` that have elements here into the longest runs that are adjacent in each
/// of `lists` and of which each member may follow the one before.
std::vector<Run> adjacent_runs(const std::vector<const Tensors*>& lists, std::vector<size_t> of,
                               const std::function<bool(size_t before, size_t after)>& may_follow);

/// The local elements of a run: one dimension, or the only tensor's part as it is.
Tensor flat(const Tensors& tensors, const Run& run);

}  // namespace weft
