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

/// One product of matrices: c[m, n] = a[m, k] @ b[k, n] + bias[n] + beta * c. a and b have one
/// dtype; any strides.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b, c;
  float beta = 0;
  /// Null when there is no bias.
  const void* bias = nullptr;
  DType bias_dtype = DType::f32;

  /// The product of which c is the transpose; without the bias.
  Product transposed() const {
    return {n, m, k, b.transposed(), a.transposed(), c.transposed(), beta};
  }
};

/// Computes the product: with oneDNN, or in plain loops when it is tiny, not floating, or the build
/// has no oneDNN.
void multiply(const Product& product);

}  // namespace weft
