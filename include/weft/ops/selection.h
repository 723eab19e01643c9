// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// PyTorch's functions that select elements along a dim. Negative dims count from the end. Where the
// dim is sharded, they work on the parts, with memory in proportion to a part, unless stated.

/// Elements, and where they lie along the dim (i64).
struct ValuesAndIndices {
  Tensor values, indices;
};

/// The largest, or smallest, element along `dim` and its first index.
WEFT_API ValuesAndIndices max_along(const Tensor& a, int dim, bool keepdims = false);
WEFT_API ValuesAndIndices min_along(const Tensor& a, int dim, bool keepdims = false);
/// The largest, or smallest, of all elements up to and including each one, and its last index. From
/// a NaN on, values are NaN, with the index of the last NaN.
WEFT_API ValuesAndIndices cummax(const Tensor& a, int dim);
WEFT_API ValuesAndIndices cummin(const Tensor& a, int dim);
/// Sorted elements and the indices that sort, as `sort` and `argsort`.
WEFT_API ValuesAndIndices sort_along(const Tensor& a, int dim = -1, bool descending = false);
/// The k largest, or smallest, elements along `dim`, in order.
WEFT_API ValuesAndIndices topk(const Tensor& a, int64_t k, int dim = -1, bool largest = true);
/// The k-th smallest element along `dim`, counted from 1.
WEFT_API ValuesAndIndices kthvalue(const Tensor& a, int64_t k, int dim = -1, bool keepdims = false);
/// The lower of the two middle elements; NaN where there is one.
WEFT_API Tensor median(const Tensor& a);
WEFT_API ValuesAndIndices median(const Tensor& a, int dim, bool keepdims = false);
/// The same of the elements that are not NaN; NaN where there are none.
WEFT_API Tensor nanmedian(const Tensor& a);
WEFT_API ValuesAndIndices nanmedian(const Tensor& a, int dim, bool keepdims = false);
/// Quantile q in [0, 1] along `dim`, or of all elements; NaN where there is one, or (`nanquantile`)
/// of the elements that are not NaN. `interpolation` between neighbours is "linear", "lower",
/// "higher", "nearest" or "midpoint". Several q make a first dim of the result.
WEFT_API Tensor quantile(const Tensor& a, double q, std::optional<int> dim = {},
                         bool keepdims = false, std::string_view interpolation = "linear");
WEFT_API Tensor quantile(const Tensor& a, const std::vector<double>& q, std::optional<int> dim = {},
                         bool keepdims = false, std::string_view interpolation = "linear");
WEFT_API Tensor nanquantile(const Tensor& a, double q, std::optional<int> dim = {},
                            bool keepdims = false, std::string_view interpolation = "linear");
WEFT_API Tensor nanquantile(const Tensor& a, const std::vector<double>& q,
                            std::optional<int> dim = {}, bool keepdims = false,
                            std::string_view interpolation = "linear");

/// Element index[.., i, ..] along `dim` for each element of `index`, whose other dims may be
/// smaller than those of `a`.
WEFT_API Tensor gather(const Tensor& a, int dim, const Tensor& index);
/// The elements of `a` where `mask` (bool) holds, in row-major order: [n].
WEFT_API Tensor masked_select(const Tensor& a, const Tensor& mask);
/// Whether each element of `a` is one of `elements`: bool. Each rank reads `elements`.
WEFT_API Tensor isin(const Tensor& a, const Tensor& elements);
/// The indices of the nonzero elements: [n, dims of a].
WEFT_API Tensor argwhere(const Tensor& a);
/// a [...] as rows [..., classes] that are 1 at the element's number and 0 elsewhere: i64. Without
/// `classes`, as many as the largest number needs.
WEFT_API Tensor one_hot(const Tensor& a, int64_t classes = -1);

}  // namespace weft
