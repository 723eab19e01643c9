// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/kernels/matmul/product.h"

namespace weft {

/// Whether the product is of a few rows by a matrix with dense columns, or the transpose of that:
/// the products of decoding one token.
bool is_narrow(const Product& product);

/// Computes a narrow product of f32, bf16 or f16: dot products in f32 that read the matrix once,
/// without repacking.
void multiply_narrow(const Product& product);

/// How many rows ahead to prefetch: when each row begins on another page, the processor does not
/// prefetch by itself.
inline constexpr int64_t kFetchedAhead = 16;
template <class T> void fetch_ahead(const T* row, int64_t elements) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < elements; i += kLine) __builtin_prefetch(row + i);
}

}  // namespace weft
