// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/tensor.h"

namespace weft {

// PyTorch's functions that combine elements at indices or put them at places. Negative dims and
// indices count from the end. Functions that replace elements throw std::invalid_argument where two
// indices are equal.

/// a with the elements src[.., i, ..] combined at element index[.., i, ..] along `dim`: `reduce` is
/// "sum", "prod", "mean", "amax" or "amin". Elements of `a` take part if `include_self`. Equal
/// largest elements share the gradient evenly.
WEFT_API Tensor scatter_reduce(const Tensor& a, int dim, const Tensor& index, const Tensor& src,
                               std::string_view reduce, bool include_self = true);
/// The same with slice i of `src` at slice index[i] of `dim`.
WEFT_API Tensor index_reduce(const Tensor& a, int dim, const Tensor& index, const Tensor& src,
                             std::string_view reduce, bool include_self = true);
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

/// Sums, means or maxima ("sum", "mean", "max") of the rows `ids` of weight [vocabulary, d], by
/// bag: a row each of ids [bags, n]; or of ids [n], those from each of `offsets` [bags] on.
/// `scales` multiply the rows.
WEFT_API Tensor embedding_bag(const Tensor& weight, const Tensor& ids,
                              const std::optional<Tensor>& offsets = {},
                              std::string_view mode = "mean",
                              const std::optional<Tensor>& scales = {});

}  // namespace weft
