// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/manifest.h"

namespace weft {

/// The different boxes that a layout makes of a shape, and the ranks that hold each.
struct Partition {
  /// The boxes that have elements; for an empty tensor, the whole tensor as one box.
  std::vector<Box> boxes;
  /// holders[box]: ranks in order.
  std::vector<std::vector<int>> holders;
  /// By rank; -1: it holds nothing.
  std::vector<int> box_of_rank;
};

/// Which rank writes which box, computed from the manifest alone. A box that one rank holds belongs
/// to that rank. A box that several ranks hold belongs to the one with the fewest bytes so far;
/// the largest boxes are assigned first.
class Ownership {
 public:
  /// std::invalid_argument when tensors times ranks are more than 2^28.
  explicit Ownership(const Manifest& manifest);

  /// Box of tensor `tensor` that the rank writes, or nullptr.
  const Box* box_of(size_t tensor, int rank) const;
  /// The boxes that all ranks together write, and who writes each.
  const std::vector<Box>& boxes_of(size_t tensor) const { return partitions_[tensor]->boxes; }
  int owner(size_t tensor, size_t box) const;
  /// Bytes that a rank writes of tensors.
  int64_t bytes_of(int rank) const { return bytes_[static_cast<size_t>(rank)]; }

 private:
  void give_single_holders(const Manifest& manifest);
  void give_shared(const Manifest& manifest);

  std::vector<std::shared_ptr<const Partition>> partitions_;
  /// By tensor; empty where each box has one holder.
  std::vector<std::vector<int>> owners_;
  std::vector<int64_t> bytes_;
};

}  // namespace weft
