// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "nn/adjacency.h"
#include "weft/extend/disk_memory.h"

namespace weft {

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
