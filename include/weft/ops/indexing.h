// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/tensor.h"

namespace weft {

// Ops that read or write elements at indices (i32 or i64). Negative dims and indices count from the
// end; std::invalid_argument names an index out of range. Where the dim is sharded, ranks send each
// other the elements that are named, each once.

/// Returns the slices of `dim` at `indices` [n]: the shape of `a` with size n in that dim.
WEFT_API Tensor take(const Tensor& a, const Tensor& indices, int dim);
/// Returns element indices[.., i, ..] along `dim` for each element of `indices`, which has as many
/// dims as `a`; the other dims broadcast.
WEFT_API Tensor take_along_dim(const Tensor& a, const Tensor& indices, int dim);
/// Element index[.., i, ..] along `dim` for each element of `index`, whose other dims may be
/// smaller than those of `a`.
WEFT_API Tensor gather(const Tensor& a, int dim, const Tensor& index);
/// The elements of `a` where `mask` (bool) holds, in row-major order: [n].
WEFT_API Tensor masked_select(const Tensor& a, const Tensor& mask);

/// Indices of one dim of a tensor.
struct DimIndex {
  int dim;
  Tensor index;
};

/// The elements of `a` at indices of some dims, which broadcast to one shape. The dims of that
/// shape take the place of the indexed dims where these are neighbours, and come first otherwise,
/// as in NumPy.
WEFT_API Tensor index(const Tensor& a, const std::vector<DimIndex>& indices);
/// The same with the places where `mask` (bool) holds, over the dims from `dim` on, as one dim.
WEFT_API std::vector<DimIndex> indices_of_mask(const Tensor& mask, int dim);
/// `a` with these elements replaced by `values`, which broadcast; or, to `accumulate`, added.
/// The last of equal indices stays, unless it accumulates.
WEFT_API Tensor index_put(const Tensor& a, const std::vector<DimIndex>& indices,
                          const Operand& values, bool accumulate = false);

// PyTorch's functions that put elements at indices. Of equal indices the last one stays where
// elements are replaced, in every layout. The result is laid out along `dim` as `a` is.

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

/// a, broadcast with `mask` (bool), with the elements where it holds replaced by those of `src`, in
/// row-major order.
WEFT_API Tensor masked_scatter(const Tensor& a, const Tensor& mask, const Tensor& src);
/// a with the elements at `index` of the flattened tensor replaced by those of `src`; or, to
/// `accumulate`, added.
WEFT_API Tensor put(const Tensor& a, const Tensor& index, const Tensor& src,
                    bool accumulate = false);
/// The elements at `index` of the flattened tensor, in the shape of `index`.
WEFT_API Tensor take_flat(const Tensor& a, const Tensor& index);
/// a with its diagonal (see `diagonal`) replaced by `src`.
WEFT_API Tensor diagonal_scatter(const Tensor& a, const Tensor& src, int64_t offset = 0,
                                 int dim1 = 0, int dim2 = 1);
/// Element (i, j, ...) is element offset + i * strides[0] + j * strides[1] + ... of the flattened
/// tensor: a copy. And a with these elements replaced by `src`.
WEFT_API Tensor as_strided(const Tensor& a, const Shape& sizes, const std::vector<int64_t>& strides,
                           int64_t offset = 0);
WEFT_API Tensor as_strided_scatter(const Tensor& a, const Tensor& src, const Shape& sizes,
                                   const std::vector<int64_t>& strides, int64_t offset = 0);
/// All elements `value`, a number or a tensor without dims.
WEFT_API Tensor fill(const Tensor& a, const Operand& value);

}  // namespace weft
