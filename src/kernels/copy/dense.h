// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/copy/copy.h"
#include "weft/block.h"
#include "weft/storage.h"

namespace weft {

/// A block for kernels that need contiguous elements: the block itself when it is suitable, else a
/// dense copy that lives as long as this object.
class DenseBlock {
 public:
  static DenseBlock as_it_is(const MemoryBlock& block) { return DenseBlock(block, true); }
  /// Dense in all dims.
  static DenseBlock of(const MemoryBlock& block) { return DenseBlock(block, block.is_dense()); }
  /// Dense along the last dim; the other strides may be any.
  static DenseBlock of_rows(const MemoryBlock& block) {
    int last = block.shape.ndim() - 1;
    return DenseBlock(block, last < 0 || block.strides[last] == 1 || block.shape[last] <= 1);
  }
  operator const MemoryBlock&() const { return block_; }  // NOLINT(google-explicit-constructor)

 private:
  DenseBlock(const MemoryBlock& block, bool as_it_is) : block_(block) {
    if (as_it_is) [[likely]]
      return;
    const size_t bytes = static_cast<size_t>(block.numel()) * size_of(block.dtype);
    memory_ = Storage::allocate(bytes, block.device);
    block_ = dense_block(memory_->data(), block.dtype, block.shape, block.device);
    copy(block_, block);
  }

  Ref<Storage> memory_;
  MemoryBlock block_;
};

}  // namespace weft
