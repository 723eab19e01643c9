// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/export.h"

namespace weft {

/// The 64-bit XXH3 hash of the bytes, with a seed: equal on every machine of one byte order. It
/// finds accidents, not attacks.
WEFT_API uint64_t xxh3_of(std::span<const std::byte> bytes, uint64_t seed = 0);

/// Adds a number to a hash of numbers, which is not as strong as `xxh3_of`.
inline uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 32);
}

}  // namespace weft
