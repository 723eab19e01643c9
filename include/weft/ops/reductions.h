// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "weft/export.h"
#include "weft/operand.h"
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
/// True where all elements, or any, are nonzero (NaN is): bool. No elements give true and false.
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

// Counts of elements, and estimates.

/// The number of elements in each of `bins` equal intervals from `low` to `high`, in the dtype of
/// `a`; from the least to the largest element if both are equal. Others do not count.
WEFT_API Tensor histc(const Tensor& a, int64_t bins = 100, double low = 0, double high = 0);
/// The number of elements between neighbours of `edges` [bins + 1] (the last one included), or the
/// sum of their `weight`; with `density`, divided by their sum and by the widths. Counts of
/// integers and sums of integer weights are i64, densities f64.
struct Histogram {
  Tensor hist, bin_edges;
};
WEFT_API Histogram histogram(const Tensor& a, const Tensor& edges,
                             const std::optional<Tensor>& weight = {}, bool density = false);
/// The same for `bins` equal intervals over `range` (two numbers), or over the elements; 1 wide in
/// all around a single number. Edges of integers are f64.
WEFT_API Histogram histogram(const Tensor& a, int64_t bins,
                             const std::optional<std::vector<double>>& range = {},
                             const std::optional<Tensor>& weight = {}, bool density = false);
/// Counts of the numbers from 0 on (i64), or sums of the `weights` of their elements.
WEFT_API Tensor bincount(const Tensor& a, const std::optional<Tensor>& weights = {},
                         int64_t minlength = 0);

/// The covariances of the rows of a matrix [variables, observations], and their correlations.
WEFT_API Tensor cov(const Tensor& a, double correction = 1);
WEFT_API Tensor corrcoef(const Tensor& a);
/// The same with each observation counted `frequencies` times (integers) and weighted by `weights`.
WEFT_API Tensor cov(const Tensor& a, double correction, const std::optional<Tensor>& frequencies,
                    const std::optional<Tensor>& weights);
/// The slices of `dim` whose p-norm is above `most`, scaled to that norm.
WEFT_API Tensor renorm(const Tensor& a, double p, int dim, double most);
/// Estimates of the derivatives along `dims` (none: all) by central differences of second order,
/// with one-sided ones of `edge_order` 1 or 2 at the ends. `spacing` has a number or the
/// coordinates [n] of the elements for each dim, or one for all; without any it is 1.
WEFT_API Tensors gradient(const Tensor& a, const std::vector<Operand>& spacing = {},
                          const std::vector<int>& dims = {}, int edge_order = 1);
/// All subsets of `r` elements of a vector, in the order of its elements: a row each.
/// `with_replacement` lets elements repeat.
WEFT_API Tensor combinations(const Tensor& a, int64_t r = 2, bool with_replacement = false);
/// The sum of a^k / k! of square matrices [..., n, n].
WEFT_API Tensor matrix_exp(const Tensor& a);

}  // namespace weft
