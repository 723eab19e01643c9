// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"
#include "weft/number.h"

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

/// out[..., i, ...] = start + step * i, with i the index along `dim`; integers are computed in i64.
WEFT_KERNEL(void, fill_range, (const MemoryBlock& out, int dim, double start, double step),
            (out, dim, start, step))

/// out += factor * in; `in` broadcasts to out's shape. The halves are added in f32.
void accumulate(const MemoryBlock& out, const MemoryBlock& in, double factor = 1);

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
