// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Ops along one dim (negative ones count from the end). Where the dim is sharded, `cumulative_sum`
// to `argsort` work on the parts, with memory in proportion to a part, and taking exchanges the
// elements that are named, each once; the others gather the dim.

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

/// Returns the slices of `dim` at `indices` [n] (i32 or i64): the shape of `a` with size n in that
/// dim. Negative indices count from the end; std::invalid_argument names an index out of range.
WEFT_API Tensor take(const Tensor& a, const Tensor& indices, int dim);
/// Returns element indices[.., i, ..] along `dim` for each element of `indices` (i32 or i64), which
/// has as many dims as `a`; the other dims broadcast. Indices are as in `take`.
WEFT_API Tensor take_along_dim(const Tensor& a, const Tensor& indices, int dim);

// The following work on the flattened tensor, with memory in proportion to a part where its first
// dim is sharded. Results of one dim are sharded as that; indices and counts are i64.

/// The indices of the nonzero elements (NaN included): a tensor [n] for each dim.
WEFT_API Tensors nonzero(const Tensor& a);
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

}  // namespace weft
