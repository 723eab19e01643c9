// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "weft/ops/complex.h"
#include "weft/ops/shapes.h"
#include "weft/tensor.h"

namespace weft {

// The ops that call LAPACK. They report a matrix that fails in `info` (src/kernels/linalg/linalg.h)
// and throw nothing about values, which ranks may not share. The functions of `weft/linalg.h` check
// their operands and results.

/// The adjoints of matrices: transposed, and conjugated where they are complex.
inline Tensor t(const Tensor& a) { return conj(matrix_transpose(a)); }

/// Gives replicated results the values of the mesh's first rank where ranks have others: pivots,
/// signs and the vectors of equal eigenvalues depend on the processor and on the number of threads.
/// Ranks compare a few sums.
Tensors agreed(Tensors results);

/// 1 / x off the diagonal of matrices, 0 on it.
Tensor inverses_off_diagonal(const Tensor& x);

struct CholeskyFactor {
  Tensor l, info;
};
CholeskyFactor cholesky_factor(const Tensor& a, bool upper);

/// The factors of a matrix with at least as many rows as columns.
struct LuFactor {
  Tensor lu, pivots, order, info;
};
LuFactor lu_factor_of(const Tensor& a);

/// Solves t x = b, or t^H x = b, with a triangle of `a`.
Tensor solve_triangle(const Tensor& a, const Tensor& b, bool upper, bool transposed = false,
                      bool unit = false);

/// Solves a x = b, or a^H x = b, by the factors of `a`. Gradients flow to `a` and `b`.
Tensor solve_by_lu(const Tensor& a, const Tensor& lu, const Tensor& pivots, const Tensor& b,
                   bool transposed = false);

struct QrFactor {
  Tensor q, r;
};
/// `complete`: q is square.
QrFactor qr_factor(const Tensor& a, bool complete);
/// The factors of a matrix that is cut by rows over p ranks, each with at least n rows; nothing for
/// another one. Each rank factors its part, and all factor the p triangles [n, n], which each
/// receives: p n^2 elements (TSQR: J. Demmel et al., "Communication-optimal parallel and sequential
/// QR and LU factorizations", 2012). q stays cut, r is replicated.
std::optional<QrFactor> tall_qr(const Tensor& a, bool with_q);

struct SymmetricEigen {
  Tensor values, vectors, info;
};
SymmetricEigen symmetric_eigen(const Tensor& a, bool upper);
/// Returns no vectors.
SymmetricEigen symmetric_eigenvalues(const Tensor& a, bool upper);

/// Eigenvalues and eigenvectors of any square matrices: complex.
SymmetricEigen general_eigen(const Tensor& a);
/// Returns no vectors.
SymmetricEigen general_eigenvalues(const Tensor& a);

struct SingularValues {
  Tensor u, s, vh, info;
};
SingularValues singular_values(const Tensor& a, bool full);
/// Returns neither u nor vh.
SingularValues singular_values_alone(const Tensor& a);

}  // namespace weft
