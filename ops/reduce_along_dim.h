// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/take/take.h"
#include "weft/tensor.h"

namespace weft {

/// [..., size, ...]: the elements of `values` at equal `indices` (of the same shape) along `dim`,
/// combined; 0 where no index points. Equal largest elements share the gradient evenly.
Tensor reduce_along_dim(const Tensor& values, const Tensor& indices, int dim, int64_t size,
                        Combining combining);

}  // namespace weft
