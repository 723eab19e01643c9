// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/matmul/product.h"

namespace weft {

/// Computes the product in plain loops, for every dtype but bool; used for all products in builds
/// without oneDNN.
void multiply_plain(const Product& product);

}  // namespace weft
