// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/hash.h"

// Compiled into this file, so that the hash uses the vectors of the processor we compile for.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weft {

uint64_t xxh3_of(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace weft
