// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/tensor.h"

namespace weft {

// PyTorch's functions that put elements at places. Negative dims and indices count from the end.

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
