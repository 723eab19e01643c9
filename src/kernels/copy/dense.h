// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/copy/copy.h"
#include "weft/block.h"
#include "weft/storage.h"

namespace weft {

/// Temporary memory as a dense block.
struct DenseMemory {
  Ref<Storage> memory;
  MemoryBlock block;

  DenseMemory(const Shape& shape, DType dtype, Device device)
      : memory(Storage::allocate(static_cast<size_t>(shape.product()) * size_of(dtype), device)),
        block(dense_block(memory->data(), dtype, shape, device)) {}
};

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
    const DenseMemory dense(block.shape, block.dtype, block.device);
    memory_ = dense.memory;
    block_ = dense.block;
    copy(block_, block);
  }

  Ref<Storage> memory_;
  MemoryBlock block_;
};

}  // namespace weft
