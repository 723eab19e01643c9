// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace weft
