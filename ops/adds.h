// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/engine/tensor_body.h"

namespace weft {

/// Returns whether the next functions add `values` to `a`: tensors of one of the dtypes that sums
/// have, and without layouts. With layouts, sums apart from `a` may stay Partial.
bool adds_into(const Tensor& a, const Tensor& values, const Tensor& indices, int dim);
/// `a` plus the slices of `values`, or its elements, in the places `indices` of dim `dim`.
Tensor add_slices_into(const Tensor& a, const Tensor& values, const Tensor& indices, int dim);
Tensor add_along_dim_into(const Tensor& a, const Tensor& values, const Tensor& indices, int dim);

}  // namespace weft
