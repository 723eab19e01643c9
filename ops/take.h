// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/tensor.h"

namespace weft {

/// What take_along_dim's gradient is: zeros with `size` elements along `dim`, plus `values` where
/// `indices` say.
Tensor add_along_dim(const Tensor& values, const Tensor& indices, int dim, int64_t size);

}  // namespace weft
