// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Ops along one dim (negative ones count from the end). Where the dim is sharded, they work on the
// parts, with memory in proportion to a part, unless stated.

/// Sums and products of all elements up to and including each one; the shape stays. Integers and
/// bool accumulate in i64, which wraps. `include_initial` puts the sum or product of none first.
WEFT_API Tensor cumulative_sum(const Tensor& a, int dim, bool include_initial = false);
WEFT_API Tensor cumulative_prod(const Tensor& a, int dim, bool include_initial = false);
/// log(sum(exp)) of all elements up to and including each one; for floats.
WEFT_API Tensor logcumsumexp(const Tensor& a, int dim);

/// Sorts in ascending or `descending` order; equal elements keep their order. NaN counts as the
/// greatest element: it comes last, or first when `descending`.
WEFT_API Tensor sort(const Tensor& a, int dim = -1, bool descending = false);
/// Returns the indices (i64) that sort: take_along_dim(a, argsort(a, dim), dim) is sort(a, dim).
WEFT_API Tensor argsort(const Tensor& a, int dim = -1, bool descending = false);

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

// The following work on the flattened tensor, with memory in proportion to a part where its first
// dim is sharded. Results of one dim are sharded as that; indices and counts are i64.

/// The indices of the nonzero elements (NaN included): a tensor [n] for each dim.
WEFT_API Tensors nonzero(const Tensor& a);
/// The indices of the nonzero elements: [n, dims of a].
WEFT_API Tensor argwhere(const Tensor& a);
/// The positions in `sorted` [n] before (`right`: behind) which the elements of `a` belong. With
/// `sorted` [.., n] it has a row for each row of `a` [.., m]. `sorter`, shaped as `sorted`, sorts
/// it if given. If n is sharded, the result is Partial, and nothing moves.
WEFT_API Tensor searchsorted(const Tensor& sorted, const Tensor& a, bool right = false,
                             const Tensor& sorter = {});
/// searchsorted(boundaries, a, right).
WEFT_API Tensor bucketize(const Tensor& a, const Tensor& boundaries, bool right = false);
/// The distinct elements in ascending order (each NaN counts), the first index of each in the
/// flattened tensor, the index among them of each element of `a`, and how often each occurs.
struct Unique {
  Tensor values, indices, inverse, counts;
};
WEFT_API Unique unique(const Tensor& a);
/// The values alone, in half the time and memory.
WEFT_API Tensor unique_values(const Tensor& a);

// The following may gather a sharded dim.

/// The smallest of the most frequent elements along `dim`, and the last index of one.
WEFT_API ValuesAndIndices mode(const Tensor& a, int dim = -1, bool keepdims = false);
/// True where the element of `a` is one of `elements`: bool. Each rank reads `elements`.
WEFT_API Tensor isin(const Tensor& a, const Tensor& elements);
/// Elements without their direct repetitions, the index among them of each element of `a`, and the
/// numbers of repetitions: of the flattened tensor, or of the slices of `dim`.
struct UniqueConsecutive {
  Tensor values, inverse, counts;
};
WEFT_API UniqueConsecutive unique_consecutive(const Tensor& a, std::optional<int> dim = {});

}  // namespace weft
