// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Other shapes and places of the same elements: views where memory allows.

/// The same elements in row-major order as `shape`.
WEFT_API Tensor reshape(const Tensor& a, const Shape& shape);
WEFT_API Tensor transpose(const Tensor& a, int dim0, int dim1);
/// Dim i of the result is dim `dims[i]` of `a`.
WEFT_API Tensor permute(const Tensor& a, const std::vector<int>& dims);
/// Elements start, start + step, ... below stop of `dim`; negative start and stop count from the
/// end.
WEFT_API Tensor slice(const Tensor& a, int dim, int64_t start, int64_t stop, int64_t step = 1);
/// One after the other along `dim`; the other dims are equal.
WEFT_API Tensor cat(const Tensors& tensors, int dim);
/// `before` and `after` zeros more along `dim`.
WEFT_API Tensor pad(const Tensor& a, int dim, int64_t before, int64_t after);
/// Dims of size 1 (and new leading ones) repeated to `shape`, without a copy.
WEFT_API Tensor expand(const Tensor& a, const Shape& shape);
/// Without dim `dim`, whose size is 1.
WEFT_API Tensor squeeze(const Tensor& a, int dim);
/// With a new dim of size 1 before dim `dim`.
WEFT_API Tensor unsqueeze(const Tensor& a, int dim);

/// The elements of `dims` in reverse order ({}: of all dims); sharded dims exchange what changes
/// places.
WEFT_API Tensor flip(const Tensor& a, const std::vector<int>& dims = {});
/// a with zeros above, or below, diagonal `diagonal` of its last two dims: element (i, j) lies on
/// diagonal j - i.
WEFT_API Tensor tril(const Tensor& a, int64_t diagonal = 0);
WEFT_API Tensor triu(const Tensor& a, int64_t diagonal = 0);

}  // namespace weft
