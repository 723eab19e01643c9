// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/decompositions.h"

namespace weft {

// Square matrices [n, n] that are cut over p ranks, factored and solved without a rank that has all
// of one. Besides its part, each rank has a few panels [n, kPanel], and the rows that all have of
// one panel. A matrix that is not cut by rows alone is moved to rows, and its factor back.

inline constexpr int64_t kPanel = 128;

/// Whether a matrix is one of these, and large enough that panels pay off.
bool is_cut(const Tensor& a);

/// The layout of a matrix, or rows cut over the axes that cut it.
Sharding row_cuts(const Tensor& a);
Tensor cut_by_rows(const Tensor& a);

/// As cholesky_factor of the lower triangle; the factor is cut as `a` is. Each rank receives
/// n^2 / 2 elements.
CholeskyFactor cholesky_of_rows(const Tensor& a);

/// As lu_factor_of; lu is cut as `a` is, the others are on all ranks. Each rank receives the
/// panels, n^2 / 2 elements, sums of them, and of the rows that are exchanged: up to 6 n^2 in all.
LuFactor lu_of_rows(const Tensor& a);

/// As solve_by_lu; x [n, k] is cut by rows. `order`: of lu_of_rows.
Tensor solve_by_lu_of_rows(const Tensor& lu, const Tensor& order, const Tensor& b,
                           bool transposed = false);

/// The order of rows that pivots make, as in LuFactor.
Tensor order_of(const Tensor& pivots);

/// As solve_triangle of a matrix that is cut by rows; x [n, k] is cut as `a` is. Each rank receives
/// n (kPanel + k) elements.
Tensor solve_triangle_of_rows(const Tensor& a, const Tensor& b, bool upper, bool transposed = false,
                              bool unit = false);

}  // namespace weft

namespace weft::linalg {

/// The same, with gradients, which no rank gathers either.
Tensor cut_solve_triangle(const Tensor& a, const Tensor& b, bool upper, bool transposed, bool unit);
/// Solves a x = b, or a^H x = b, by the factors of `a`.
Tensor cut_solve(const Tensor& a, const LuFactor& factors, const Tensor& b,
                 bool transposed = false);
CholeskyFactor cut_cholesky(const Tensor& a);

}  // namespace weft::linalg
