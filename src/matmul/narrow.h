// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/matmul/product.h"

namespace weft {

/// Whether the product is of a few rows by a matrix whose columns are dense, or, transposed, the
/// same: what decoding a token computes with each weight.
bool is_narrow(const Product& product);

/// A narrow product of f32, bf16 or f16: dot products in f32 that read the matrix once, as it is
/// stored.
void multiply_narrow(const Product& product);

/// Rows that lie apart are fetched so many ahead: where each begins another page, the processor
/// does not do it by itself.
inline constexpr int64_t kFetchedAhead = 16;
template <class T>
void fetch_ahead(const T* row, int64_t elements) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < elements; i += kLine) __builtin_prefetch(row + i);
}

}  // namespace weft
