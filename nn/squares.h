// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/communicator.h"
#include "weft/tensor.h"

namespace weft {

/// How sums over the local elements of tensors of any layouts and meshes become sums over the
/// wholes: by one all-reduce, in which an element that several ranks hold counts once.
class SquaresReduction {
 public:
  /// std::invalid_argument when one is Partial, or the ranks of none of the meshes are known to
  /// hold those of all others.
  SquaresReduction(const char* what, const Tensors& tensors);

  /// Whether this rank's part of tensor `i` counts.
  bool counts_here(size_t i) const { return counts_[i]; }
  /// Adds up the ranks' numbers, in place; a dense tensor of one device, of equal size on each
  /// rank. Nothing where no tensor lies over several ranks.
  void reduce(const Tensor& sums) const;

 private:
  /// Empty: each rank has everything.
  Communicator ranks_;
  std::vector<bool> counts_;
};

}  // namespace weft
