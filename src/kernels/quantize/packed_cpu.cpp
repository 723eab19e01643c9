// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/base/parallel.h"
#include "src/kernels/iteration/iteration.h"
#include "src/kernels/quantize/packed.h"

namespace weft::host {

void pack_matrix(const MemoryBlock& matrix, const MemoryBlock& packed) {
  const int64_t columns = matrix.shape[1], blocks = packed.shape[1], bytes = packed.shape[2];
  const int bits = packed_bits(bytes);
  parallel_for(matrix.shape[0] * blocks, grain_of(4 * kPackedBlock), [&](int64_t at, int64_t end) {
    float values[kPackedBlock];
    for (; at < end; ++at) {
      const int64_t row = at / blocks, first = at % blocks * kPackedBlock;
      const int64_t n = std::min(kPackedBlock, columns - first);
      std::fill(values, values + kPackedBlock, 0.0f);
      Line line = line_at(matrix, row * matrix.strides[0] + first * matrix.strides[1]);
      line.stride = matrix.strides[1];
      load_line(values, line, n);
      pack_record([&](int i) { return values[i]; }, bits, packed.as<uint8_t>() + at * bytes);
    }
  });
}

/// Decodes a record of 4 bits: two codes a byte.
static void unpack_halves(const uint8_t* codes, float scale, float* values) {
  for (int i = 0; i < kPackedBlock / 2; ++i) {
    const int low = codes[i] & 15, high = codes[i] >> 4;
    values[2 * i] = static_cast<float>((low ^ 8) - 8) * scale;
    values[2 * i + 1] = static_cast<float>((high ^ 8) - 8) * scale;
  }
}

void unpack_matrix(const MemoryBlock& packed, const MemoryBlock& out) {
  const int64_t bytes = packed.shape[2];
  const int bits = packed_bits(bytes);
  parallel_for(packed.shape[0] * packed.shape[1], grain_of(kPackedBlock),
               [&](int64_t at, int64_t end) {
                 float values[kPackedBlock];
                 for (; at < end; ++at) {
                   const uint8_t* record = packed.as<uint8_t>() + at * bytes;
                   const float scale = record_scale(record);
                   if (bits == 4) {
                     unpack_halves(record + 4, scale, values);
                   } else {
                     for (int i = 0; i < kPackedBlock; ++i) {
                       values[i] = static_cast<float>(static_cast<int8_t>(record[4 + i])) * scale;
                     }
                   }
                   store_line(line_at(out, at * kPackedBlock), values, kPackedBlock);
                 }
               });
}

}  // namespace weft::host
