// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "weft/extend/disk_memory.h"
#include "weft/tensor.h"

namespace weft {

/// Indices of tensors, in the order of their memory.
using Run = std::vector<size_t>;

/// True when, for each tensor of `run`, the local elements directly follow those of the tensor
/// before.
bool is_adjacent(const Tensors& tensors, const Run& run);

/// Splits the tensors `of` that have local elements into the longest runs that are adjacent in each
/// of `lists` and in which `may_follow` holds for neighbours.
std::vector<Run> adjacent_runs(const std::vector<const Tensors*>& lists, std::vector<size_t> of,
                               const std::function<bool(size_t before, size_t after)>& may_follow);

/// Tensors on disk are adjacent if one array follows the other in a file, but are not joined by
/// `flat`. `copied_flat` copies such a run to memory, where it is joined.
Tensor copied_flat(const Tensors& tensors, const Run& run);
/// Returns the local elements of a run in one dimension, or the only tensor's part with its shape.
Tensor flat(const Tensors& tensors, const Run& run);

/// The runs of parameters that one call updates, for as long as they stay adjacent.
struct ParameterRuns {
  std::vector<size_t> with_gradient;
  std::vector<Run> runs;
  /// Values and gradients during a step, by parameter.
  Tensors values, gradients;
  /// By moment, then by parameter.
  std::vector<Tensors> state;
  /// The files of the state, by moment, if it rests on disk.
  std::vector<std::shared_ptr<DiskMemory>> files;
  Tensor one;

  bool hold() const {
    return std::all_of(runs.begin(), runs.end(), [&](const Run& run) {
      return is_adjacent(values, run) && is_adjacent(gradients, run);
    });
  }
};

}  // namespace weft
