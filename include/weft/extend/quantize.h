// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/block.h"
#include "weft/context.h"
#include "weft/export.h"

namespace weft {

// Numbers as codes of fewer bits. Codes of i8 and f8_e4m3 have a scale of f32 for each `block`
// consecutive ones, a multiple of 4: the greatest magnitude among them / 127 or / 448. A number is
// its code times its scale. A block that contains NaN or infinity becomes NaN. Codes of bf16 have
// no scales.

/// Number of scales of n codes.
constexpr int64_t scales_of(DType codes, int64_t n, int64_t block) {
  return codes == DType::bf16 ? 0 : (n + block - 1) / block;
}

/// How codes are rounded.
struct CodeRounding {
  /// False: to nearest, ties to even. True: up with the probability that leaves the expected value
  /// unchanged, by word i of the stream for code i - `first`.
  bool stochastic = false;
  RandomState random = {};
  /// A multiple of 4.
  uint64_t first = 0;
};

/// Writes the elements of `in`, row by row, as codes. `in` is a floating matrix whose rows are
/// dense. `codes` [n] and `scales` are dense. `residual` [n], f32 (or without memory): is added to
/// the elements first, and becomes what the codes miss of them (error feedback).
WEFT_API void quantize(const MemoryBlock& codes, const MemoryBlock& scales, const MemoryBlock& in,
                       const MemoryBlock& residual, int64_t block, const CodeRounding& rounding);

/// Writes the sum of r arrays of codes, [r, n] and [r, scales], in their order and in f32, into
/// `out`, a floating matrix of n elements whose rows are dense; adds it with `accumulate`.
WEFT_API void dequantize(const MemoryBlock& out, const MemoryBlock& codes,
                         const MemoryBlock& scales, int64_t block, bool accumulate);

}  // namespace weft
