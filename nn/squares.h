// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/communicator.h"
#include "weft/tensor.h"

namespace weft {

/// Turns sums over the local elements of tensors, with any layouts and meshes, into sums over the
/// whole tensors by one all-reduce. An element that several ranks hold counts once.
class SquaresReduction {
 public:
  /// std::invalid_argument when a tensor is Partial, or when no mesh is known to contain the ranks
  /// of all others.
  SquaresReduction(const char* what, const Tensors& tensors);

  /// Whether this rank's part of tensor `i` counts.
  bool counts_here(size_t i) const { return counts_[i]; }
  /// Adds up the ranks' numbers in place: a dense tensor of one device, of equal size on each rank.
  /// Has no effect if no tensor is laid out over several ranks.
  void reduce(const Tensor& sums) const;

 private:
  /// Empty when no tensor has a sharding.
  Communicator ranks_;
  std::vector<bool> counts_;
};

}  // namespace weft
