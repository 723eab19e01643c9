// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/matmul/product.h"
#include "weft/shape.h"

namespace weft {

/// A dim over which products repeat, and how far each operand goes on with it.
struct BatchDim {
  int64_t size, a, b, c;
};

/// A product for each element of the batch dims, innermost first.
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

/// The `index`-th product of the batch, of those over the dims from `first` on.
Product product_at(const BatchedProduct& batch, int64_t index, int first = 0);

}  // namespace weft
