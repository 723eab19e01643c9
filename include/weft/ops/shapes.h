// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Ops that change shape or order of the same elements: views where the memory allows it.

/// The same elements, in row-major order, in another shape.
WEFT_API Tensor reshape(const Tensor& a, const Shape& shape);
WEFT_API Tensor transpose(const Tensor& a, int dim0, int dim1);
/// Dim i of the result is dim `dims[i]` of `a`.
WEFT_API Tensor permute(const Tensor& a, const std::vector<int>& dims);
/// Elements start, start + step, ... before stop along `dim`; negative start and stop count from
/// the end.
WEFT_API Tensor slice(const Tensor& a, int dim, int64_t start, int64_t stop, int64_t step = 1);
/// Concatenates along `dim`; the other dims must be equal.
WEFT_API Tensor cat(const Tensors& tensors, int dim);
/// Adds `before` and `after` zeros along `dim`.
WEFT_API Tensor pad(const Tensor& a, int dim, int64_t before, int64_t after);
/// Repeats dims of size 1 (and new leading ones) to `shape`, without a copy.
WEFT_API Tensor expand(const Tensor& a, const Shape& shape);
/// Removes dim `dim`, whose size must be 1.
WEFT_API Tensor squeeze(const Tensor& a, int dim);
/// Inserts a dim of size 1 before dim `dim`.
WEFT_API Tensor unsqueeze(const Tensor& a, int dim);

/// Reverses the elements along `dims` ({}: all dims). Ranks exchange those parts of sharded dims
/// that change places.
WEFT_API Tensor flip(const Tensor& a, const std::vector<int>& dims = {});
/// a with zeros above (tril), or below (triu), diagonal `diagonal` of its last two dims. Element
/// (i, j) is on diagonal j - i.
WEFT_API Tensor tril(const Tensor& a, int64_t diagonal = 0);
WEFT_API Tensor triu(const Tensor& a, int64_t diagonal = 0);

}  // namespace weft
