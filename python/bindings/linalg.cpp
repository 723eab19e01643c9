// SPDX-License-Identifier: Apache-2.0
#include "weft/linalg.h"

#include "weft/krylov.h"

#include "python/bindings/bindings.h"

namespace weft::python {

using linalg::FactorAndInfo;

// The functions of weft.linalg; weft/linalg.py adds other words and forms of results.

py::object for_python(const FactorAndInfo& results) {
  return py::cast(Tensors{results.factor, results.info});
}
py::object for_python(const linalg::Lu& results) {
  return named_tuple("LUResult", {results.p, results.l, results.u});
}
py::object for_python(const linalg::LuFactors& results) {
  return named_tuple("LUFactorResult", {results.lu, results.pivots});
}
py::object for_python(const linalg::Qr& results) {
  return named_tuple("QRResult", {results.q, results.r});
}
py::object for_python(const linalg::Svd& results) {
  return named_tuple("SVDResult", {results.u, results.s, results.vh});
}
py::object for_python(const linalg::Eigh& results) {
  return named_tuple("EighResult", {results.eigenvalues, results.eigenvectors});
}
py::object for_python(const linalg::SignAndLogarithm& results) {
  return named_tuple("SlogdetResult", {results.sign, results.logabsdet});
}

/// Binds `function(...)`, whose results are an object of Python.
template <class Function>
static void def_results(py::module_& m, const Signature& signature, const char* text,
                        Function function) {
  const auto bind = [&]<class Result, class... Args>(Result (*)(Args...)) {
    m.def(
        signature.name(),
        [function](std::decay_t<Args>... args) {
          return for_python(released([&] { return function(args...); }));
        },
        signature, text);
  };
  bind(static_cast<py::detail::function_signature_t<Function>*>(nullptr));
}

static void bind_factors(py::module_& m) {
  add_named_tuple(m, "LUResult", "P L U", "The factors of matrices: P @ L @ U.");
  add_named_tuple(m, "LUFactorResult", "LU pivots", "L and U in one matrix, and exchanged rows.");
  add_named_tuple(m, "QRResult", "Q R", "The factors of matrices: Q @ R.");
  add_named_tuple(m, "SVDResult", "U S Vh", "The factors of matrices: U @ diag(S) @ Vh.");
  add_named_tuple(m, "EighResult", "eigenvalues eigenvectors", "Eigenvectors are columns.");
  add_named_tuple(m, "EigResult", "eigenvalues eigenvectors", "Eigenvectors are columns.");
  add_named_tuple(m, "SlogdetResult", "sign logabsdet", "The determinant, sign * exp(logabsdet).");
  def(m, "_linalg_cholesky(x, *, upper=False)", &linalg::cholesky,
      "L with L @ L.mH = x for positive definite matrices, of which the lower triangle is read; "
      "with `upper`, U with U.mH @ U = x, by the upper triangle. ValueError for others, on all "
      "ranks");
  def_results(m, "_linalg_cholesky_ex(x, *, upper=False)",
              "The factor and info, which is not 0 for a matrix that is not positive definite",
              linalg::cholesky_ex);
  def(m, "cholesky_solve(B, L, upper=False)", &linalg::cholesky_solve,
      "Solves A @ X = B by the factor L of A = L @ L.mH, or with `upper`, L.mH @ L");
  def(m, "cholesky_inverse(L, upper=False)", &linalg::cholesky_inverse,
      "The inverse of L @ L.mH, or with `upper`, L.mH @ L");
  def_results(m, "_linalg_lu(x)",
              "x = P @ L @ U: a permutation, a lower triangle with ones on its diagonal, an upper "
              "triangle",
              linalg::lu);
  def_results(m, "_linalg_lu_factor(x)",
              "L (without its diagonal of ones) and U in one matrix, and pivots (int32): row i was "
              "exchanged with row pivots[i], counted from 1",
              linalg::lu_factor);
  def(m, "_linalg_lu_solve(LU, pivots, B, adjoint=False)", &linalg::lu_solve,
      "Solves A @ X = B, or A.mH @ X = B, by the result of lu_factor(A)");
  def_results(
      m, "_linalg_qr(x, *, mode='reduced')",
      "x = Q @ R with orthonormal columns of Q: [m, k] for 'reduced', [m, m] for 'complete'",
      [](const Tensor& x, const std::string& mode) { return linalg::qr(x, mode); });
}

static void bind_spectra(py::module_& m) {
  def_results(m, "_linalg_svd(x, *, full_matrices=True)",
              "x = U @ diag(S) @ Vh with S in descending order; U and Vh are square unless "
              "full_matrices=False",
              linalg::svd);
  def(m, "_linalg_svdvals(x)", &linalg::svdvals, "Singular values in descending order");
  def_results(m, "_linalg_eigh(x, upper=False)",
              "Eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices, of which "
              "one triangle is read",
              linalg::eigh);
  def(m, "_linalg_eigvalsh(x, upper=False)", &linalg::eigvalsh,
      "Eigenvalues of symmetric matrices, ascending");
  m.def(
      "_linalg_eig",
      [](const Tensor& x) {
        const linalg::Eigh made = released([&] { return linalg::eig(x); });
        return named_tuple("EigResult", {made.eigenvalues, made.eigenvectors});
      },
      Signature("_linalg_eig(x)"),
      "Eigenvalues and eigenvectors (columns) of square matrices, both complex");
  def(m, "_linalg_eigvals(x)", &linalg::eigvals, "Eigenvalues of square matrices, complex");
  using Tolerance = std::optional<Operand>;
  def(m, "_linalg_pinv(x, rtol=None, atol=None)",
      "The pseudo-inverse. Singular values of at most atol, or rtol (max(m, n) eps unless one of "
      "both is given) times the greatest one, count as 0",
      [](const Tensor& x, const Tolerance& rtol, const Tolerance& atol) {
        return linalg::pinv(x, {rtol, atol});
      });
  def(m, "_linalg_lstsq(x1, x2, rtol=None)",
      "The X of least norm among those with the least norm of x1 @ X - x2",
      [](const Tensor& a, const Tensor& b, const Tolerance& rtol) {
        return linalg::lstsq(a, b, {rtol, {}});
      });
  def(m, "_linalg_matrix_rank(x, rtol=None, atol=None)",
      "The number (int64) of singular values that do not count as 0, as in pinv",
      [](const Tensor& x, const Tolerance& rtol, const Tolerance& atol) {
        return linalg::matrix_rank(x, {rtol, atol});
      });
  def(m, "_linalg_cond(x, p=2.0)", &linalg::cond,
      "The condition number: the matrix norm of order p times that of the inverse");
  def(m, "_linalg_nuclear_norm(x, keepdims=False)", &linalg::nuclear_norm,
      "The sum of singular values");
}

/// A matrix, or a function of vectors; none for None.
static linalg::LinearOperator operator_in(const char* what, const py::object& given) {
  if (given.is_none()) return {};
  if (const auto* matrix = bound_value<Tensor>(given)) return linalg::LinearOperator(*matrix);
  if (!py::isinstance<py::function>(given)) {
    fail_type(concat(what, ": operator is ", type_of(given), ", expected a Tensor or a function"));
  }
  return linalg::LinearOperator(function_in<Tensor, const Tensor&>(given));
}

static py::tuple cg_in(const py::object& a, const Tensor& b, const MaybeTensor& x0, double rtol,
                       double atol, std::optional<int64_t> maxiter, const py::object& inverse) {
  if (maxiter && *maxiter < 1) fail("cg: maxiter is ", *maxiter, ", expected at least 1");
  const linalg::ConjugateGradientOptions options{.x0 = x0,
                                                 .rtol = rtol,
                                                 .atol = atol,
                                                 .most_steps = maxiter.value_or(0),
                                                 .preconditioner = operator_in("cg", inverse)};
  const auto kept = operator_in("cg", a);
  const auto made = released([&] { return linalg::cg(kept, b, options); });
  return py::make_tuple(made.x, made.steps, made.residual, made.converged);
}

static py::object eigsh_in(const py::object& a, int64_t k, bool largest, const MaybeTensor& v0,
                           double tol, std::optional<int64_t> ncv, int64_t maxiter) {
  const linalg::LanczosOptions options{.largest = largest,
                                       .v0 = v0,
                                       .tolerance = tol,
                                       .vectors = ncv.value_or(0),
                                       .most_restarts = maxiter};
  const auto kept = operator_in("eigsh", a);
  return for_python(released([&] { return linalg::eigsh(kept, k, options); }));
}

static void bind_solvers(py::module_& m) {
  def(m, "_linalg_cg(A, b, x0=None, rtol=1e-5, atol=0.0, maxiter=None, M=None)", &cg_in,
      "Solves A @ x = b by conjugate gradients for a symmetric positive definite A, a matrix or a "
      "function of vectors: (x, steps, residual, converged)");
  def(m, "_linalg_eigsh(A, k=6, largest=True, v0=None, tol=0.0, ncv=None, maxiter=300)", &eigsh_in,
      "The k greatest or least eigenvalues, ascending, and eigenvectors (columns) of a symmetric "
      "matrix or function, by Lanczos with thick restarts");
  def_results(m, "_linalg_svd_lowrank(x, q=6, niter=2)",
              "The q greatest singular values and their vectors, by products with random vectors",
              linalg::svd_lowrank);
}

void bind_linalg(py::module_& m) {
  bind_solvers(m);
  bind_factors(m);
  bind_spectra(m);
  def(m, "_linalg_solve(x1, x2, *, left=True)", &linalg::solve,
      "X with x1 @ X = x2, or X @ x1 = x2 with left=False; x2 of one dim is one vector. "
      "ValueError for a singular matrix, on all ranks");
  def(m, "_linalg_solve_triangular(x1, x2, *, upper, left=True, unitriangular=False)",
      &linalg::solve_triangular,
      "X with T @ X = x2, or X @ T = x2 with left=False, for a triangle T of x1, whose diagonal "
      "counts as 1 with unitriangular=True");
  def(m, "_linalg_inv(x)", &linalg::inv, "The inverse. ValueError for a singular matrix");
  def_results(m, "_linalg_inv_ex(x)", "The inverse, and info: not 0 for a singular matrix",
              linalg::inv_ex);
  def(m, "_linalg_det(x)", &linalg::det, "The determinant");
  def_results(m, "_linalg_slogdet(x)",
              "The sign of the determinant, and the logarithm of its magnitude", linalg::slogdet);
  def(m, "_linalg_matrix_power(x, n)", &linalg::matrix_power,
      "The n-th power of matrices; that of the inverse for n < 0");
  def(m, "_linalg_multi_dot(tensors)", &linalg::multi_dot,
      "The product of matrices (the first and the last may be vectors) in the order with the "
      "fewest multiplications");
}

}  // namespace weft::python
