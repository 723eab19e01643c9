// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/kernel.h"

namespace weft {

// Factorisations and solutions of many matrices, the last two dims of dense blocks of f32 or f64,
// by LAPACK on the CPU, also of c64 and c128, and cuSOLVER on a GPU. a^H is the adjoint, which is
// a^T for real matrices; singular values, and eigenvalues but general ones, are real. All blocks of
// a call have equal leading dims, unless it says otherwise. `info` (i32, the leading dims) receives
// 0 for a matrix without a failure. A matrix that has failed gets NaN in its results; the others
// are computed.

/// The code in `info` of a matrix with an infinity or a NaN, where LAPACK does not accept these.
inline constexpr int kNotFinite = -1;

/// l [n, n] = the lower triangular factor of the lower triangle of a, or, with `upper`, the upper
/// one of the upper triangle: a = l l^H or l^H l. info: the order of a leading minor that is not
/// positive.
WEFT_KERNEL(void, cholesky_factor,
            (const MemoryBlock& l, const MemoryBlock& info, const MemoryBlock& a, bool upper),
            (l, info, a, upper))

/// lu [m, n] = the factors of a with its rows exchanged: below the diagonal L, whose diagonal is 1,
/// the rest is U. pivots (i32 [k], k = min(m, n)): row i was exchanged with row pivots[i], counted
/// from 1. order (i64 [m]): row i of L U is row order[i] of a. info: the first zero on the diagonal
/// of U, counted from 1; the factors are then right, too.
WEFT_KERNEL(void, lu_factor,
            (const MemoryBlock& lu, const MemoryBlock& pivots, const MemoryBlock& order,
             const MemoryBlock& info, const MemoryBlock& a),
            (lu, pivots, order, info, a))

/// Solves t x = b for x [n, k] with a triangle t of a [n, n]; the leading dims of a broadcast.
struct Triangle {
  bool upper;
  /// Solves t^H x = b.
  bool transposed;
  /// Takes the diagonal as 1.
  bool unit;
};
WEFT_KERNEL(void, solve_triangle,
            (const MemoryBlock& x, const MemoryBlock& a, const MemoryBlock& b, Triangle triangle),
            (x, a, b, triangle))

/// Solves a x = b, or a^H x = b, for x [n, k] with the factors of a; their leading dims broadcast.
WEFT_KERNEL(void, lu_solve,
            (const MemoryBlock& x, const MemoryBlock& lu, const MemoryBlock& pivots,
             const MemoryBlock& b, bool transposed),
            (x, lu, pivots, b, transposed))

/// a [m, n] = q [m, c] r [c, n] with orthonormal columns of q; c is min(m, n), or m.
WEFT_KERNEL(void, qr_factor, (const MemoryBlock& q, const MemoryBlock& r, const MemoryBlock& a),
            (q, r, a))

/// Eigenvalues [n] in ascending order and, unless `vectors` is null, eigenvectors (columns) of
/// Hermitian matrices, of which one triangle is read. info: not 0 if the algorithm did not
/// converge, or kNotFinite.
WEFT_KERNEL(void, symmetric_eigen,
            (const MemoryBlock& values, const MemoryBlock* vectors, const MemoryBlock& info,
             const MemoryBlock& a, bool upper),
            (values, vectors, info, a, upper))

/// a [m, n] = u diag(s) vh: singular values s [k] in descending order, and unless `u` and `vh` are
/// null, u [m, k] and vh [k, n], or u [m, m] and vh [n, n]. info: as of symmetric_eigen.
WEFT_KERNEL(void, singular_values,
            (const MemoryBlock* u, const MemoryBlock& s, const MemoryBlock* vh,
             const MemoryBlock& info, const MemoryBlock& a),
            (u, s, vh, info, a))

/// Eigenvalues [n] and, unless `vectors` is null, eigenvectors (columns of length 1) of any square
/// matrices. These results are complex. info: as of symmetric_eigen. The CPU alone has it.
WEFT_KERNEL(void, general_eigen,
            (const MemoryBlock& values, const MemoryBlock* vectors, const MemoryBlock& info,
             const MemoryBlock& a),
            (values, vectors, info, a))

}  // namespace weft
