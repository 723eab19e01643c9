// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "src/kernels/kernel.h"
#include "src/kernels/matmul/product.h"

namespace weft {

/// Computes products of any sizes, such as those of the rows of each expert. Their results do not
/// overlap. On a GPU they are one call of cuBLAS where it supports them, queued on the current
/// stream of `device`, which holds their memory.
WEFT_KERNEL(void, multiply_each, (std::span<const Product> products, Device device),
            (products, device))

}  // namespace weft
