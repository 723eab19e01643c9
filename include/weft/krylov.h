// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "weft/export.h"
#include "weft/linalg.h"
#include "weft/tensor.h"

namespace weft::linalg {

// Solvers that read a matrix through products only. The matrix may be a tensor of any layout or a
// function of vectors; vectors keep the layout of the one that the solver starts from. Each step
// adds to the operator's own traffic a sum over ranks of a few numbers. Nothing here has a
// gradient, and an operand that requires one is std::invalid_argument.

/// A linear map of vectors: it is given x [n], or [n, k] as columns, and returns a x of that shape.
class WEFT_API LinearOperator {
 public:
  LinearOperator() = default;
  /// The product with a matrix [n, n].
  explicit LinearOperator(const Tensor& matrix);
  explicit LinearOperator(std::function<Tensor(const Tensor&)> apply) : apply_(std::move(apply)) {}

  explicit operator bool() const { return static_cast<bool>(apply_); }
  /// std::invalid_argument for a result of another shape.
  Tensor operator()(const Tensor& x) const;
  /// The matrix, or an empty tensor.
  const Tensor& matrix() const { return matrix_; }

 private:
  Tensor matrix_;
  std::function<Tensor(const Tensor&)> apply_;
};

struct ConjugateGradientOptions {
  /// The solver starts from it; 0 without one.
  Tensor x0 = {};
  /// A column has converged where |b - a x| <= max(rtol |b|, atol).
  double rtol = 1e-5, atol = 0;
  /// 0: 10 n.
  int64_t most_steps = 0;
  /// Approximates the inverse of a; symmetric and positive definite.
  LinearOperator preconditioner = {};
};
struct ConjugateGradientResult {
  Tensor x;
  int64_t steps = 0;
  /// The greatest |b - a x| / |b| of a column. Where columns have converged by the recurrence of
  /// the method, rounding may leave it above rtol.
  double residual = 0;
  bool converged = false;
};
/// Solves a x = b for a symmetric positive definite operator by conjugate gradients (Hestenes and
/// Stiefel, 1952). b is [n], or [n, k]: the columns are solved together. A direction along which
/// the operator is not positive is std::invalid_argument.
WEFT_API ConjugateGradientResult cg(const LinearOperator& a, const Tensor& b,
                                    const ConjugateGradientOptions& options = {});

struct LanczosOptions {
  /// The greatest eigenvalues, or the least ones.
  bool largest = true;
  /// The solver starts from it, [n]; random normal numbers for a matrix without one.
  Tensor v0 = {};
  /// A pair has converged where |a x - value x| <= tolerance |a|; 0: 100 eps.
  double tolerance = 0;
  /// Vectors that are kept at a time, each of n elements; 0: max(2 k + 1, 20), at most n.
  int64_t vectors = 0;
  int64_t most_restarts = 300;
};
/// The k greatest or least eigenvalues of a symmetric operator, in ascending order, and their
/// eigenvectors as columns [n, k], by Lanczos with thick restarts (Wu and Simon, 2000) and full
/// orthogonalization. A repeated eigenvalue is returned as often as it occurs: after convergence
/// the solver looks for further pairs, orthogonal to those found, until none is more extreme.
/// Throws std::runtime_error where they do not converge.
WEFT_API Eigh eigsh(const LinearOperator& a, int64_t k, const LanczosOptions& options = {});

/// The q greatest singular values of matrices [m, n] and their vectors, u [m, q] and vh [q, n], by
/// products with q random vectors and `iterations` of the power method (Halko, Martinsson and
/// Tropp, 2011). A matrix that is cut by rows stays so. Has gradients.
WEFT_API Svd svd_lowrank(const Tensor& a, int64_t q = 6, int64_t iterations = 2);

}  // namespace weft::linalg
