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

/// The rounding of codes.
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

// Matrices [rows, columns] whose elements are codes of 4 or 8 bits. Each block of 64 elements of a
// row (the last one is padded with zeros) is a record of bytes: its scale in f32, the greatest
// magnitude of the block / 7 or / 127, then its codes, whole numbers from -7 to 7 (two a byte, the
// first in the low bits) or from -127 to 127. An element is its code times the scale. A packed
// matrix is a u8 tensor [rows, blocks, bytes of a record]: 0.5625 bytes an element, or 1.0625.

inline constexpr int64_t kPackedBlock = 64;
/// Bytes of a record with codes of so many bits.
constexpr int64_t packed_bytes(int bits) { return 4 + kPackedBlock * bits / 8; }
/// The bits of codes in records of so many bytes; 0 for another number of bytes.
constexpr int packed_bits(int64_t bytes) {
  return bytes == packed_bytes(4) ? 4 : bytes == packed_bytes(8) ? 8 : 0;
}

}  // namespace weft
