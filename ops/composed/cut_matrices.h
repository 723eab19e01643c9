// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/decompositions.h"

namespace weft {

// Square matrices [n, n] that are cut by rows over p ranks, factored and solved without a rank that
// has all of one. Besides its part, each rank has a few panels [n, kPanel], and the rows that all
// have of one panel.

inline constexpr int64_t kPanel = 128;

/// Whether a matrix is one of these, needs no gradient, and is large enough that panels pay off.
bool is_cut_by_rows(const Tensor& a);

/// As cholesky_factor of the lower triangle; the factor is cut as `a` is. Each rank receives
/// n^2 / 2 elements.
CholeskyFactor cholesky_of_rows(const Tensor& a);

/// As lu_factor_of, without pivots; lu is cut as `a` is, `order` is on all ranks. Each rank
/// receives n^2 elements, and the rows that are exchanged.
LuFactor lu_of_rows(const Tensor& a);

/// Rows `order` (i64, on all ranks) of a matrix that is cut by rows; ranks receive those of others.
Tensor rows_at(const Tensor& a, const Tensor& order);

/// As solve_triangle of a matrix that is cut by rows; x [n, k] is cut as `a` is. Each rank receives
/// n (kPanel + k) elements.
Tensor solve_triangle_of_rows(const Tensor& a, const Tensor& b, bool upper, bool transposed = false,
                              bool unit = false);

}  // namespace weft
