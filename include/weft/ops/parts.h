// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// PyTorch's functions that take tensors apart and join them. Negative dims count from the end.

/// At most `count` parts along `dim`, of ceil(size / count) elements, the last of fewer.
WEFT_API Tensors chunk(const Tensor& a, int64_t count, int dim = 0);
/// Parts of `size` elements along `dim`, the last of fewer; or of `sizes`, which add up to all.
WEFT_API Tensors split(const Tensor& a, int64_t size, int dim = 0);
WEFT_API Tensors split(const Tensor& a, const std::vector<int64_t>& sizes, int dim = 0);
/// `count` parts whose sizes differ by at most 1; or parts that end before each of `indices`.
WEFT_API Tensors tensor_split(const Tensor& a, int64_t count, int dim = 0);
WEFT_API Tensors tensor_split(const Tensor& a, const std::vector<int64_t>& indices, int dim = 0);
/// tensor_split along dim 1 (0 of a vector), 0 and 2.
WEFT_API Tensors hsplit(const Tensor& a, int64_t count);
WEFT_API Tensors vsplit(const Tensor& a, int64_t count);
WEFT_API Tensors dsplit(const Tensor& a, int64_t count);

/// `length` elements along `dim` from `start` on.
WEFT_API Tensor narrow(const Tensor& a, int dim, int64_t start, int64_t length);
/// Element `index` of `dim`, which the result lacks.
WEFT_API Tensor select(const Tensor& a, int dim, int64_t index);
/// The slices of `dim` at `index` [n].
WEFT_API Tensor index_select(const Tensor& a, int dim, const Tensor& index);
/// Dim `dim` as dims of `sizes`, of which one may be -1.
WEFT_API Tensor unflatten(const Tensor& a, int dim, std::vector<int64_t> sizes);
/// Windows of `size` elements along `dim`, `step` apart, in a new last dim.
WEFT_API Tensor unfold(const Tensor& a, int dim, int64_t size, int64_t step);

/// Turns the plane of two dims by 90 degrees `turns` times, from the first to the second.
WEFT_API Tensor rot90(const Tensor& a, int64_t turns = 1, const std::vector<int>& dims = {0, 1});
/// flip of dim 1, and of dim 0.
WEFT_API Tensor fliplr(const Tensor& a);
WEFT_API Tensor flipud(const Tensor& a);

/// Elements (i, i + offset) of two dims as a new last dim.
WEFT_API Tensor diagonal(const Tensor& a, int64_t offset, int dim1, int dim2);
/// The last dim as diagonal `offset` of the dims `dim1` and `dim2` of a tensor of zeros.
WEFT_API Tensor diag_embed(const Tensor& a, int64_t offset = 0, int dim1 = -2, int dim2 = -1);
/// A vector as a diagonal of a matrix, or a diagonal of a matrix as a vector.
WEFT_API Tensor diag(const Tensor& a, int64_t diagonal = 0);
/// diag_embed of all elements in row-major order.
WEFT_API Tensor diagflat(const Tensor& a, int64_t offset = 0);
/// Matrices along the diagonal of one.
WEFT_API Tensor block_diag(const Tensors& tensors);

/// Dims of size 1 added to have 1, 2 or 3.
WEFT_API Tensor atleast_1d(const Tensor& a);
WEFT_API Tensor atleast_2d(const Tensor& a);
WEFT_API Tensor atleast_3d(const Tensor& a);
/// Joins along dim 1 (0 for vectors), 0 and 2, and vectors as columns.
WEFT_API Tensor hstack(const Tensors& tensors);
WEFT_API Tensor vstack(const Tensors& tensors);
WEFT_API Tensor dstack(const Tensors& tensors);
WEFT_API Tensor column_stack(const Tensors& tensors);
/// All combinations of an element of each vector: a row each.
WEFT_API Tensor cartesian_prod(const Tensors& tensors);

}  // namespace weft
