// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft {

/// Returns `indices`, which the error calls `name`, as i32 or i64, the dtypes that kernels read;
/// std::invalid_argument "what: ..." unless they are integers.
Tensor as_indices(const char* what, const char* name, const Tensor& indices);

/// The gradient of take_along_dim: zeros with `size` elements along `dim`, plus `values` at
/// `indices`.
Tensor add_along_dim(const Tensor& values, const Tensor& indices, int dim, int64_t size);

}  // namespace weft
