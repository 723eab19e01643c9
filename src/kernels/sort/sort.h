// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "src/base/half.h"
#include "src/kernels/kernel.h"

namespace weft {

/// Sorts rows (the last dim), stable; NaNs count as the greatest. `values` (unless null) and
/// `indices` (i32 or i64, into the row, plus `offset`) receive the first elements of the sorted
/// row, as many as their last dim; when that is shorter than in's, this is top-k.
WEFT_KERNEL(void, sort_rows,
            (const MemoryBlock* values, const MemoryBlock& indices, const MemoryBlock& in,
             bool descending = false, int64_t offset = 0),
            (values, indices, in, descending, offset))

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
