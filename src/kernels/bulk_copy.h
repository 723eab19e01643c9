// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace weft {

/// From so many bytes on a copy does better to write around the caches: it would drive out what it
/// reads, and read what it is about to write. 1.5 times as fast here at 64 MiB.
inline constexpr size_t kBulkBytes = size_t{8} << 20;

/// memcpy that writes around the caches; both need not be aligned. `finish_bulk_writes` comes
/// before anybody is told of the copy.
void copy_around_caches(void* to, const void* from, size_t bytes);
void finish_bulk_writes();

/// memcpy, around the caches where there is much: where it is part of a copy of so many bytes.
void copy_bytes(void* to, const void* from, size_t bytes, size_t of);
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  copy_bytes(to, from, bytes, bytes);
}

}  // namespace weft
