// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/shape.h"
#include "weft/tensor.h"

namespace weft {

// Shapes and indices of functions that put elements at places along a dim.

/// A vector of indices as a tensor with as many dims as `a`, of size 1 but for `dim`.
Tensor index_along(const char* what, const Tensor& a, int dim, const Tensor& index);
/// How often each of `size` places along the dim is an index: i64.
Tensor counts_of(const Tensor& index, int dim, int64_t size);
/// Zeros behind `x` in all dims but `dim`, to the shape of `a`.
Tensor padded(Tensor x, const Tensor& a, int dim);
/// Checks the shapes, and returns the dim.
int check_scatter(const char* what, const Tensor& a, int dim, const Tensor& index,
                  const Shape& src);
/// The first elements of each dim, at most as many as `shape` says.
Tensor cut_to(Tensor x, const Shape& shape);

}  // namespace weft
