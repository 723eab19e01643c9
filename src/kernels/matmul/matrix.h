// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/dtype.h"

namespace weft {

/// Element (i, j) is `i * row + j * column` elements after `data`.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t row = 0;
  int64_t column = 1;

  Matrix transposed() const { return {data, dtype, column, row}; }
};

/// to = factor * from, for `rows` x `columns` elements of any strides and floating dtypes, or of
/// one integer dtype with factor 1. Transposes in blocks.
void copy_matrix(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to,
                 double factor = 1);

/// to = from + beta * to.
void store_matrix(const Matrix& from, int64_t rows, int64_t columns, const Matrix& to, float beta);

}  // namespace weft
