// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/operand.h"
#include "weft/tensor.h"

namespace weft::linalg {

// Dense linear algebra in the names of torch.linalg and the array API, by LAPACK on the CPU and
// cuSOLVER on a GPU, for f32 and f64 (integers become f32), and on the CPU for c64 and c128. Where
// this file says a^T of a complex matrix, it is conjugated, too. A matrix is the last two dims of a
// tensor; the other dims are a batch. Each device needs whole matrices: a cut of the batch stays
// and moves nothing, and cuts of the matrices are gathered. The columns of a right-hand side may be
// cut, too. One square matrix of at least 512 rows that is cut stays so, its gradients too, in
// `cholesky`, `lu`, `lu_factor`, `lu_solve`, `solve`, `solve_triangular`, `cholesky_solve`, `inv`,
// `det` and `slogdet` (those of `lu`, `det` and `slogdet` are gathered for gradients). They work in
// panels, of which a rank receives one at a time: n^2 / 2 elements in all for `cholesky`, up to
// 6 n^2 for factors with exchanged rows. A rank has its part of the factor and a few panels; a
// matrix that columns are cut of, too, is moved to rows, which takes the same memory once more.
// `qr`, `svd` and `svdvals` of a tall matrix [m, n] exchange triangles, n^2 elements for each rank.
// All functions have first and second derivatives unless they say otherwise.
//
// A matrix that fails (singular, not positive definite, not finite) is std::invalid_argument on all
// ranks, with its place in the batch: ranks that share the batch exchange one number for that. The
// functions *_ex do not: they return `info`, 0 for each matrix that has not failed.

/// l with a = l l^T, for positive definite matrices, of which the lower triangle is read; with
/// `upper`, u with a = u^T u, by the upper triangle.
WEFT_API Tensor cholesky(const Tensor& a, bool upper = false);
struct FactorAndInfo {
  Tensor factor, info;
};
/// NaN for a matrix that is not positive definite: info is then the order of the leading minor.
WEFT_API FactorAndInfo cholesky_ex(const Tensor& a, bool upper = false);
/// Solves a x = b for a = l l^T, or u^T u.
WEFT_API Tensor cholesky_solve(const Tensor& b, const Tensor& l, bool upper = false);
/// The inverse of l l^T, or u^T u.
WEFT_API Tensor cholesky_inverse(const Tensor& l, bool upper = false);

struct Lu {
  Tensor p, l, u;
};
/// a [m, n] = p l u with a permutation p, l [m, k] lower triangular with 1 on its diagonal, and u
/// [k, n] upper triangular; k = min(m, n).
WEFT_API Lu lu(const Tensor& a);
struct LuFactors {
  Tensor lu, pivots;
};
/// The factors of a in one matrix, and pivots (i32): row i was exchanged with row pivots[i],
/// counted from 1.
WEFT_API LuFactors lu_factor(const Tensor& a);
/// Solves a x = b, or a^T x = b, by the factors of a.
WEFT_API Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b,
                         bool transposed = false);

struct Qr {
  Tensor q, r;
};
/// a [m, n] = q r with orthonormal columns of q. Mode "reduced": q [m, k], r [k, n]; "complete": q
/// [m, m], r [m, n], without a gradient if m > n; "r": q is empty.
WEFT_API Qr qr(const Tensor& a, std::string_view mode = "reduced");

struct Svd {
  Tensor u, s, vh;
};
/// a [m, n] = u diag(s) vh with s in descending order. u [m, m] and vh [n, n], or, unless
/// `full_matrices`, [m, k] and [k, n]. Gradients of u and vh need distinct singular values.
WEFT_API Svd svd(const Tensor& a, bool full_matrices = true);
WEFT_API Tensor svdvals(const Tensor& a);

struct Eigh {
  Tensor eigenvalues, eigenvectors;
};
/// Eigenvalues in ascending order, and eigenvectors as columns, of symmetric (complex: Hermitian)
/// matrices, of which the lower triangle is read, or the `upper` one. Gradients of the vectors need
/// distinct eigenvalues.
WEFT_API Eigh eigh(const Tensor& a, bool upper = false);
WEFT_API Tensor eigvalsh(const Tensor& a, bool upper = false);
/// Eigenvalues, in no order, and eigenvectors as columns of length 1 of any square matrices, on the
/// CPU. Both are complex. Gradients of the vectors need distinct eigenvalues, and a loss that does
/// not depend on the phases of vectors.
WEFT_API Eigh eig(const Tensor& a);
WEFT_API Tensor eigvals(const Tensor& a);

/// x with a x = b, or x a = b unless `left`. b [..., n, k], or one vector [n]; or a vector for each
/// matrix, if these shapes cannot be of matrices.
WEFT_API Tensor solve(const Tensor& a, const Tensor& b, bool left = true);
/// The same for a triangle of a; `unitriangular`: its diagonal counts as 1.
WEFT_API Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left = true,
                                 bool unitriangular = false);
WEFT_API Tensor inv(const Tensor& a);
/// For a singular matrix: inf or NaN, and info not 0.
WEFT_API FactorAndInfo inv_ex(const Tensor& a);

WEFT_API Tensor det(const Tensor& a);
struct SignAndLogarithm {
  Tensor sign, logabsdet;
};
/// The sign of the determinant (a number of magnitude 1 for complex matrices), and the logarithm of
/// its magnitude: -inf for a singular matrix.
WEFT_API SignAndLogarithm slogdet(const Tensor& a);

/// Singular values of at most `atol`, or `rtol` times the greatest one, count as 0: numbers, or
/// tensors with one for each matrix. rtol is max(m, n) eps unless one of both is given.
struct RankTolerance {
  std::optional<Operand> rtol = {}, atol = {};
};
/// The pseudo-inverse.
WEFT_API Tensor pinv(const Tensor& a, const RankTolerance& tolerance = {});
/// x of least norm among those with the least |a x - b|.
WEFT_API Tensor lstsq(const Tensor& a, const Tensor& b, const RankTolerance& tolerance = {});
/// The number of singular values that do not count as 0: i64.
WEFT_API Tensor matrix_rank(const Tensor& a, const RankTolerance& tolerance = {});
/// The n-th power of square matrices; that of the inverse for n < 0.
WEFT_API Tensor matrix_power(const Tensor& a, int64_t n);
/// |a| |a^-1| by the matrix norm of that order; 2 and -2 take singular values.
WEFT_API Tensor cond(const Tensor& a, double order = 2);
/// The sum of singular values. weft::matrix_norm has the other norms of matrices.
WEFT_API Tensor nuclear_norm(const Tensor& a, bool keepdims = false);
/// The product of matrices, of which the first and the last may be vectors, in the order with the
/// fewest multiplications.
WEFT_API Tensor multi_dot(const Tensors& matrices);

}  // namespace weft::linalg
