// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/tensor.h"

namespace weft {

// PyTorch's functions that put elements at indices (i32 or i64). Negative dims count from the end.
// Of equal indices the last one stays where elements are replaced, in every layout. The result is
// laid out along `dim` as `a` is; ranks send each other what goes to other parts of it.

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

/// a with element index[.., i, ..] along `dim` combined with src[.., i, ..]: `reduce` is "sum",
/// "prod", "mean", "amax" or "amin". Without `include_self` the elements of `a` that are written to
/// do not count. index_reduce does so for slices, as index_add.
WEFT_API Tensor scatter_reduce(const Tensor& a, int dim, const Tensor& index, const Tensor& src,
                               const std::string& reduce, bool include_self = true);
WEFT_API Tensor index_reduce(const Tensor& a, int dim, const Tensor& index, const Tensor& src,
                             const std::string& reduce, bool include_self = true);

/// a with element `index` of `dim`, or elements start, start + step, ... before stop, replaced.
WEFT_API Tensor select_scatter(const Tensor& a, const Tensor& src, int dim, int64_t index);
WEFT_API Tensor slice_scatter(const Tensor& a, const Tensor& src, int dim, int64_t start,
                              int64_t stop, int64_t step = 1);

}  // namespace weft
