// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "src/kernels/kernel.h"
#include "src/kernels/matmul/product.h"
#include "weft/shape.h"

namespace weft {

/// A dim over which products repeat, and each operand's stride along it.
struct BatchDim {
  int64_t size, a, b, c;
};

/// One product for each element of the batch dims, innermost first.
struct BatchedProduct {
  Product each;
  int ndim = 0;
  BatchDim dims[kMaxDims];

  int64_t count() const {
    int64_t count = 1;
    for (int i = 0; i < ndim; ++i) count *= dims[i].size;
    return count;
  }
};

/// Returns product number `index` of the batch over the dims from `first` on.
Product product_at(const BatchedProduct& batch, int64_t index, int first = 0);

/// Computes the products. On a GPU they are queued on the current stream of `device`, which holds
/// their memory: by cuBLASLt, or by a plain kernel when it has no algorithm for them (integers,
/// unsupported strides).
WEFT_KERNEL(void, multiply_batch, (const BatchedProduct& batch, Device device), (batch, device))

/// Computes products of any sizes, such as those of the rows of each expert. Their results do not
/// overlap. On a GPU they are one call of cuBLAS where it supports them, queued on the current
/// stream of `device`, which holds their memory.
WEFT_KERNEL(void, multiply_each, (std::span<const Product> products, Device device),
            (products, device))

}  // namespace weft
