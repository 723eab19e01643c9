// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "mesh/rows.h"

namespace weft {

// Shared by the files of counted exchanges.

/// The keys first <= key < last.
struct KeyRange {
  int64_t first, last;
};
/// The keys of the rows that a rank with that box of the tensor has.
KeyRange range_of(const RowDim& rows, const Box& box);

/// Returns the positions of keys of that range in the dim of the block that holds the range; of
/// elements, in the flat block.
std::vector<int64_t> places_of(const RowDim& rows, KeyRange range, std::span<const int64_t> keys);

/// Returns the positions of the keys in ascending order; of equal ones in the order given.
std::vector<int64_t> order_of_keys(std::span<const int64_t> keys);

/// Indices as a block of a device.
class IndexBlock {
 public:
  IndexBlock(std::vector<int64_t> values, Device device);
  operator const MemoryBlock&() const { return block_; }  // NOLINT(google-explicit-constructor)

 private:
  std::vector<int64_t> values_;
  Ref<Storage> memory_;
  MemoryBlock block_;
};

/// Returns a dense block as a vector if `elements` move, or else as it is.
inline MemoryBlock flat_if(bool elements, const MemoryBlock& block) {
  return elements ? dense_block(block.data, block.dtype, {block.numel()}, block.device) : block;
}

}  // namespace weft
