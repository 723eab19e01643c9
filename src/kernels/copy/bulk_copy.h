// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace weft {

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
