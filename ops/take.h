// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft {

/// The gradient of take_along_dim: zeros with `size` elements along `dim`, plus `values` at
/// `indices`.
Tensor add_along_dim(const Tensor& values, const Tensor& indices, int dim, int64_t size);

}  // namespace weft
