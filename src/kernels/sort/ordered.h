// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "src/kernels/math/math.h"

namespace weft {
inline namespace WEFT_COMPILER {

/// Maps x to an integer with the same order; all NaNs become the greatest, both zeros the same.
WEFT_FN inline uint64_t ordered(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x == 0 ? 0.0f : x);
  const uint32_t grows = bits >> 31 ? ~bits : bits | 0x80000000u;
  return x == x ? grows : 0xffffffffu;
}
WEFT_FN inline uint64_t ordered(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x == 0 ? 0.0 : x);
  const uint64_t grows = bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
  return x == x ? grows : ~uint64_t{0};
}
WEFT_FN inline uint64_t ordered(int64_t x) {
  return static_cast<uint64_t>(x) ^ uint64_t { 1 } << 63;
}

}  // namespace WEFT_COMPILER
}  // namespace weft
