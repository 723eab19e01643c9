// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"
#include "weft/number.h"
#include "weft/storage.h"

namespace weft {

/// out = in, converted to out's dtype. `in` broadcasts to out's shape; any strides. Conversion to
/// integers truncates; conversion to bool is "is not zero". The memory of the two must not overlap.
/// On one GPU, or from one GPU to another, the copy is queued on the current stream of out's
/// device. From or to the host it is complete, as seen by the host, on return.
WEFT_KERNEL(void, copy, (const MemoryBlock& out, const MemoryBlock& in), (out, in))

namespace cuda {
/// The same between a GPU and dense pinned host memory, which is read or written when the GPU's
/// current stream reaches the copy. The GPU converts dtypes.
void transfer(const MemoryBlock& out, const MemoryBlock& in);
}  // namespace cuda

/// Sets every element to `value`: integers to its bits.
WEFT_KERNEL(void, fill, (const MemoryBlock& out, Number value), (out, value))

/// Sets element i, in row-major order, to start + i.
WEFT_KERNEL(void, fill_range, (const MemoryBlock& out, int64_t start), (out, start))

/// out += factor * in; `in` broadcasts to out's shape. The halves are added in f32.
void accumulate(const MemoryBlock& out, const MemoryBlock& in, double factor = 1);

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

/// From this many bytes on, a copy is faster when it bypasses the caches: it would evict what it
/// reads, and read the lines it is about to write. 1.5 times as fast here at 64 MiB.
inline constexpr size_t kBulkBytes = size_t{8} << 20;

/// memcpy with non-temporal stores; no alignment required. Call `finish_bulk_writes` before another
/// thread or process is notified of the copy.
void copy_around_caches(void* to, const void* from, size_t bytes);
void finish_bulk_writes();

/// memcpy, with non-temporal stores when it is part of a copy of `of` bytes and `of` is large.
void copy_bytes(void* to, const void* from, size_t bytes, size_t of);
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  copy_bytes(to, from, bytes, bytes);
}

}  // namespace weft
