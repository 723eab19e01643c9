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

}  // namespace weft
