// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Ops along one dim (negative ones count from the end). The dim is gathered where it is sharded.

/// Sums and products of all elements up to and including each one; the shape stays. Integers and
/// bool accumulate in i64, which wraps.
WEFT_API Tensor cumulative_sum(const Tensor& a, int dim);
WEFT_API Tensor cumulative_prod(const Tensor& a, int dim);

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

}  // namespace weft
