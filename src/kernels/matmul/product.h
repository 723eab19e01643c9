// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/matmul/matrix.h"

namespace weft {

/// One product of matrices: c[m, n] = a[m, k] @ b[k, n] + bias[n] + beta * c. a and b have one
/// dtype; any strides.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b, c;
  /// Null when there is no bias.
  const void* bias = nullptr;
  DType bias_dtype = DType::f32;
  float beta = 0;
};

/// Computes the product: with oneDNN, or in plain loops when it is tiny, not floating, or the build
/// has no oneDNN.
void multiply(const Product& product);

}  // namespace weft
