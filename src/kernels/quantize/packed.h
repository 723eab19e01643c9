// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>

#include "src/base/numeric.h"
#include "src/kernels/kernel.h"
#include "weft/extend/quantize.h"

namespace weft {

inline namespace WEFT_COMPILER {

/// Writes the scale of a record byte by byte: records need not be aligned.
WEFT_FN inline void set_record_scale(uint8_t* record, float scale) {
  const auto word = std::bit_cast<uint32_t>(scale);
  for (int i = 0; i < 4; ++i) record[i] = static_cast<uint8_t>(word >> (8 * i));
}
WEFT_FN inline float record_scale(const uint8_t* record) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= static_cast<uint32_t>(record[i]) << (8 * i);
  return std::bit_cast<float>(word);
}

/// The code of x * factor, from -most to most, rounded to nearest, ties to even.
WEFT_FN inline int nearest_packed(float scaled, float most) {
  const float whole = std::nearbyint(scaled);
  return static_cast<int>(whole > most ? most : whole < -most ? -most : whole);
}

/// Writes the record of kPackedBlock values, which value(i) returns.
template <class Value> WEFT_FN void pack_record(const Value& value, int bits, uint8_t* record) {
  const float most = bits == 4 ? 7.0f : 127.0f;
  uint32_t greatest = 0;  // as integers, the magnitudes of NaN and infinity are the greatest
  for (int i = 0; i < kPackedBlock; ++i) {
    const uint32_t bits_of = std::bit_cast<uint32_t>(value(i)) & 0x7fffffffu;
    greatest = bits_of > greatest ? bits_of : greatest;
  }
  const bool is_finite = greatest < 0x7f800000u;
  const float scale = is_finite ? std::bit_cast<float>(greatest) / most : 0.0f;
  // The reciprocal of a denormal may be infinite.
  const float factor = scale < 0x1p-126f ? 0.0f : 1 / scale;
  set_record_scale(record,
                   is_finite ? (factor == 0 ? 0.0f : scale) : std::bit_cast<float>(0x7fc00000u));
  uint8_t* codes = record + 4;
  for (int i = 0; i < kPackedBlock; ++i) {
    const int code = factor == 0 ? 0 : nearest_packed(value(i) * factor, most);
    if (bits == 8) {
      codes[i] = static_cast<uint8_t>(code);
    } else if (i % 2 == 0) {
      codes[i / 2] = static_cast<uint8_t>(code & 15);
    } else {
      codes[i / 2] = static_cast<uint8_t>(codes[i / 2] | (code & 15) << 4);
    }
  }
}

/// Code `i` of a record.
WEFT_FN inline float packed_code(const uint8_t* record, int bits, int64_t i) {
  const uint8_t* codes = record + 4;
  if (bits == 8) return static_cast<float>(static_cast<int8_t>(codes[i]));
  const int half = codes[i / 2] >> (i % 2 * 4) & 15;
  return static_cast<float>((half ^ 8) - 8);
}

}  // namespace WEFT_COMPILER

/// Packs `matrix` [rows, columns], of any strides, into dense `packed` [rows, blocks, bytes].
WEFT_KERNEL(void, pack_matrix, (const MemoryBlock& matrix, const MemoryBlock& packed),
            (matrix, packed))
/// Unpacks dense `packed` into dense `out` [rows, blocks * kPackedBlock] of a floating dtype.
WEFT_KERNEL(void, unpack_matrix, (const MemoryBlock& packed, const MemoryBlock& out), (packed, out))

}  // namespace weft
