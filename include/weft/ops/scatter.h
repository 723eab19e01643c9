// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/tensor.h"

namespace weft {

// PyTorch's functions that put elements at indices (i32 or i64). Negative dims count from the end.
// Functions that replace elements throw std::invalid_argument where two indices are equal and the
// elements may differ: the result would depend on an order. They read the indices for that.

/// a + alpha * src, with slice i of `src` added to slice index[i] of `dim`.
WEFT_API Tensor index_add(const Tensor& a, int dim, const Tensor& index, const Tensor& src,
                          Number alpha = 1);
/// a with slice index[i] of `dim` replaced by slice i of `src`.
WEFT_API Tensor index_copy(const Tensor& a, int dim, const Tensor& index, const Tensor& src);
/// a with the slices `index` of `dim` filled with `value`.
WEFT_API Tensor index_fill(const Tensor& a, int dim, const Tensor& index, const Operand& value);

/// a with src[.., i, ..] added to, or in the place of, element index[.., i, ..] along `dim`. The
/// dims of `index` may be smaller than those of `src` and, but for `dim`, of `a`.
WEFT_API Tensor scatter_add(const Tensor& a, int dim, const Tensor& index, const Tensor& src);
WEFT_API Tensor scatter_along_dim(const Tensor& a, int dim, const Tensor& index,
                                  const Operand& src);

/// a with element `index` of `dim`, or elements start, start + step, ... before stop, replaced.
WEFT_API Tensor select_scatter(const Tensor& a, const Tensor& src, int dim, int64_t index);
WEFT_API Tensor slice_scatter(const Tensor& a, const Tensor& src, int dim, int64_t start,
                              int64_t stop, int64_t step = 1);

}  // namespace weft
