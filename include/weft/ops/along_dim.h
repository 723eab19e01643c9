// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Along one dim (negative ones count from the end), which is gathered where it is sharded.

/// Sums and products of the elements up to each; the shape stays. Integers and bool in i64, which
/// wraps.
WEFT_API Tensor cumulative_sum(const Tensor& a, int dim);
WEFT_API Tensor cumulative_prod(const Tensor& a, int dim);

/// The elements in order, equal ones in the order they have; NaN counts as the greatest, so that it
/// comes last, or first when `descending`.
WEFT_API Tensor sort(const Tensor& a, int dim = -1, bool descending = false);
/// Their indices (i64): take_along_dim(a, argsort(a, dim), dim) is sort(a, dim).
WEFT_API Tensor argsort(const Tensor& a, int dim = -1, bool descending = false);

/// Slices `indices` [n] (i32 or i64) of `dim`: the shape of a with n there. Negative indices count
/// from the end; std::invalid_argument names one that is outside.
WEFT_API Tensor take(const Tensor& a, const Tensor& indices, int dim);
/// Element indices[.., i, ..] of `dim` for each element of `indices` (i32 or i64), which has as
/// many dims as a; the other dims broadcast. Indices as in `take`.
WEFT_API Tensor take_along_dim(const Tensor& a, const Tensor& indices, int dim);

}  // namespace weft
