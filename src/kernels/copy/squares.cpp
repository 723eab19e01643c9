// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/copy/squares.h"

#ifdef __AVX512F__
#include <cstring>

namespace weft {

using SquareRow = uint32_t __attribute__((vector_size(64)));

// The elements of two rows in the order of their numbers, those of b from 16 on.
static SquareRow low_pairs(SquareRow a, SquareRow b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
static SquareRow high_pairs(SquareRow a, SquareRow b) {
  return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
static SquareRow low_twos(SquareRow a, SquareRow b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
static SquareRow high_twos(SquareRow a, SquareRow b) {
  return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
static SquareRow low_halves(SquareRow a, SquareRow b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
}
static SquareRow high_halves(SquareRow a, SquareRow b) {
  return __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30,
                                 31);
}
static SquareRow even_fours(SquareRow a, SquareRow b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
static SquareRow odd_fours(SquareRow a, SquareRow b) {
  return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

/// Transposes the 4 elements of 4 rows in each quarter of the rows.
static void transpose_quarters(SquareRow* rows) {
  for (int i = 0; i < kSquare; i += 4) {
    const SquareRow a = low_pairs(rows[i], rows[i + 1]), b = high_pairs(rows[i], rows[i + 1]);
    const SquareRow c = low_pairs(rows[i + 2], rows[i + 3]);
    const SquareRow d = high_pairs(rows[i + 2], rows[i + 3]);
    rows[i] = low_twos(a, c), rows[i + 1] = high_twos(a, c);
    rows[i + 2] = low_twos(b, d), rows[i + 3] = high_twos(b, d);
  }
}

static void transpose_square(uint32_t* to, int64_t to_step, const uint32_t* from,
                             int64_t from_step) {
  SquareRow rows[kSquare];
  for (int i = 0; i < kSquare; ++i) std::memcpy(&rows[i], from + i * from_step, sizeof(SquareRow));
  transpose_quarters(rows);
  const auto store = [&](int i, SquareRow row) {
    std::memcpy(to + i * to_step, &row, sizeof(SquareRow));
  };
  for (int i = 0; i < 4; ++i) {
    const SquareRow a = low_halves(rows[i], rows[4 + i]), b = high_halves(rows[i], rows[4 + i]);
    const SquareRow c = low_halves(rows[8 + i], rows[12 + i]);
    const SquareRow d = high_halves(rows[8 + i], rows[12 + i]);
    store(i, even_fours(a, c)), store(4 + i, odd_fours(a, c));
    store(8 + i, even_fours(b, d)), store(12 + i, odd_fours(b, d));
  }
}

void transpose_squares(uint32_t* to, int64_t to_step, const uint32_t* from, int64_t from_step,
                       int64_t lines) {
  for (int64_t j = 0; j < lines; j += kSquare) {
    transpose_square(to + j * to_step, to_step, from + j, from_step);
  }
}

}  // namespace weft

#endif
