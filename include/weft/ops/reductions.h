// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Reductions over `dims` (negative ones count from the end; {} is all of them). The reduced dims
// are removed, or kept with size 1 when `keepdims`. Sums of bf16 and f16 accumulate in f32.

/// Integers and bool are summed in i64.
WEFT_API Tensor sum(const Tensor& a, const std::vector<int>& dims = {}, bool keepdims = false);
/// Integers are converted to f32.
WEFT_API Tensor mean(const Tensor& a, const std::vector<int>& dims = {}, bool keepdims = false);
/// Reduces the elements that are not NaN.
WEFT_API Tensor nansum(const Tensor& a, const std::vector<int>& dims = {}, bool keepdims = false);
WEFT_API Tensor nanmean(const Tensor& a, const std::vector<int>& dims = {}, bool keepdims = false);
/// The largest element; NaN if there is one. Equal largest elements share the gradient evenly.
WEFT_API Tensor max(const Tensor& a, const std::vector<int>& dims = {}, bool keepdims = false);
WEFT_API Tensor min(const Tensor& a, const std::vector<int>& dims = {}, bool keepdims = false);
/// The sum of squares, in f32 (f64 for f64); a Partial if a reduced dim is sharded.
WEFT_API Tensor sum_squares(const Tensor& a, const std::vector<int>& dims = {},
                            bool keepdims = false);
/// The product; 1 for no elements. Integers and bool multiply in i64, which wraps. Sharded reduced
/// dims are gathered.
WEFT_API Tensor prod(const Tensor& a, const std::vector<int>& dims = {}, bool keepdims = false);
/// Whether all elements, or any, are nonzero (NaN is): bool. For no elements true and false.
WEFT_API Tensor all(const Tensor& a, const std::vector<int>& dims = {}, bool keepdims = false);
WEFT_API Tensor any(const Tensor& a, const std::vector<int>& dims = {}, bool keepdims = false);
/// sqrt of the sum of squares. Its gradient at 0 is 0.
WEFT_API Tensor norm(const Tensor& a, const std::vector<int>& dims = {}, bool keepdims = false);

/// The index (i64, in the whole tensor) of the first largest, or smallest, element along `dim`; of
/// the first NaN if there is one.
WEFT_API Tensor argmax(const Tensor& a, int dim, bool keepdims = false);
WEFT_API Tensor argmin(const Tensor& a, int dim, bool keepdims = false);
/// log of the sum of exp along `dim`.
WEFT_API Tensor logsumexp(const Tensor& a, int dim, bool keepdims = false);

/// The variance: squares of the differences from the mean, summed and divided by their number -
/// correction. Integers are converted to f32.
WEFT_API Tensor var(const Tensor& a, const std::vector<int>& dims = {}, double correction = 0,
                    bool keepdims = false);
/// The standard deviation, the square root of `var`. Its gradient at 0 is 0.
WEFT_API Tensor stddev(const Tensor& a, const std::vector<int>& dims = {}, double correction = 0,
                       bool keepdims = false);
/// The number of nonzero elements (NaN included): i64.
WEFT_API Tensor count_nonzero(const Tensor& a, const std::vector<int>& dims = {},
                              bool keepdims = false);
/// The order-th root of the sum of |a|^order; for inf and -inf the largest and smallest |a|, for 0
/// the number of nonzero elements. Integers are converted to f32. The gradient at 0 is 0.
WEFT_API Tensor vector_norm(const Tensor& a, double order = 2, const std::vector<int>& dims = {},
                            bool keepdims = false);
/// Norms of the matrices in the last two dims: the root of the sum of squares. With an order: 1 and
/// -1, the largest and smallest sum of |a| of a column; inf and -inf, of a row.
WEFT_API Tensor matrix_norm(const Tensor& a, bool keepdims = false);
WEFT_API Tensor matrix_norm(const Tensor& a, double order, bool keepdims = false);

}  // namespace weft
