// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/matmul/product.h"

namespace weft {

/// Whether the product is of a few rows by a matrix whose columns are dense, or, transposed, the
/// same: what decoding a token computes with each weight.
bool is_narrow(const Product& product);

/// A narrow product of f32, bf16 or f16: dot products in f32 that read the matrix once, as it is
/// stored.
void multiply_narrow(const Product& product);

}  // namespace weft
