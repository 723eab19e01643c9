// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/ops/selection.h"
#include "weft/tensor.h"

namespace weft {

// PyTorch's functions that count and order elements, and estimate from them. Negative dims count
// from the end.

/// How many elements are in each of `bins` equal intervals from `low` to `high`, in the dtype of
/// `a`; from the least to the largest element if both are equal. Others do not count.
WEFT_API Tensor histc(const Tensor& a, int64_t bins = 100, double low = 0, double high = 0);
/// The number of elements between neighbours of `edges` [bins + 1] (the last one included), or the
/// sum of their `weight`; with `density`, divided by their sum and by the widths.
struct Histogram {
  Tensor hist, bin_edges;
};
WEFT_API Histogram histogram(const Tensor& a, const Tensor& edges,
                             const std::optional<Tensor>& weight = {}, bool density = false);
/// The same for `bins` equal intervals over `range` (two numbers), or over the elements.
WEFT_API Histogram histogram(const Tensor& a, int64_t bins,
                             const std::optional<std::vector<double>>& range = {},
                             const std::optional<Tensor>& weight = {}, bool density = false);
/// How often each number from 0 on occurs (i64), or the sum of the `weights` of its elements.
WEFT_API Tensor bincount(const Tensor& a, const std::optional<Tensor>& weights = {},
                         int64_t minlength = 0);
/// The smallest of the most frequent elements along `dim`, and the last index of one.
WEFT_API ValuesAndIndices mode(const Tensor& a, int dim = -1, bool keepdims = false);
/// Elements without their direct repetitions, the index among them of each element of `a`, and the
/// numbers of repetitions: of the flattened tensor, or of the slices of `dim`.
struct UniqueConsecutive {
  Tensor values, inverse, counts;
};
WEFT_API UniqueConsecutive unique_consecutive(const Tensor& a, std::optional<int> dim = {});

/// The covariances of the rows of a matrix [variables, observations], each observation counted
/// `frequencies` times (integers) and weighted by `weights`.
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
