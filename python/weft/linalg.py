# SPDX-License-Identifier: Apache-2.0
"""Linear algebra: the array standard's extension `linalg`, and PyTorch's functions of that name.

Matrices are the last two dims, the others a batch, whose cuts over a mesh stay."""

from collections import namedtuple as _namedtuple

from weft import _weft
from weft._arguments import accept_words as _accept_words, described as _described
from weft._arguments import tensor_of as _tensor_of
from weft._weft import cholesky_inverse as cholesky_inverse, cholesky_solve as cholesky_solve
from weft._weft import cross as cross, diagonal as diagonal, matmul as matmul
from weft._weft import matrix_exp as matrix_exp, matrix_transpose as matrix_transpose
from weft._weft import outer as outer, tensordot as tensordot, trace as trace, vecdot as vecdot

cholesky = _weft._linalg_cholesky
det = _weft._linalg_det
eig = _weft._linalg_eig
eigvals = _weft._linalg_eigvals
inv = _weft._linalg_inv
matrix_power = _weft._linalg_matrix_power
qr = _weft._linalg_qr
slogdet = _weft._linalg_slogdet
solve = _weft._linalg_solve
solve_triangular = _weft._linalg_solve_triangular
svdvals = _weft._linalg_svdvals

CholeskyExResult = _namedtuple("CholeskyExResult", "L info")
InvExResult = _namedtuple("InvExResult", "inverse info")
LUFactorExResult = _namedtuple("LUFactorExResult", "LU pivots info")
SolveExResult = _namedtuple("SolveExResult", "result info")
CGResult = _namedtuple("CGResult", "x steps residual converged")
SVDLowRankResult = _namedtuple("SVDLowRankResult", "U S V")
LstsqResult = _namedtuple("LstsqResult", "solution residuals rank singular_values")


def cholesky_ex(x, *, upper=False, check_errors=False):
    """The factor, and info: not 0 for a matrix that is not positive definite, whose factor is NaN;
    with check_errors=True a ValueError."""
    if check_errors:
        cholesky(x, upper=upper)
    return CholeskyExResult(*_weft._linalg_cholesky_ex(x, upper=upper))


def inv_ex(x, *, check_errors=False):
    """The inverse, and info: not 0 for a singular matrix; with check_errors=True a ValueError."""
    if check_errors:
        inv(x)
    return InvExResult(*_weft._linalg_inv_ex(x))


def _check_pivot(what, pivot):
    if not pivot:
        raise ValueError(f"{what}: pivot is False, expected True")


def lu(x, *, pivot=True):
    """(P, L, U): x = P @ L @ U with a permutation, a lower triangle with ones on its diagonal, and
    an upper triangle."""
    _check_pivot("lu", pivot)
    return _weft._linalg_lu(x)


def lu_factor(x, *, pivot=True):
    """(LU, pivots): L without its diagonal of ones and U in one matrix; row i was exchanged with
    row pivots[i] (int32), counted from 1."""
    _check_pivot("lu_factor", pivot)
    return _weft._linalg_lu_factor(x)


def lu_factor_ex(x, *, pivot=True, check_errors=False):
    """lu_factor, and info: the first zero on the diagonal of U, counted from 1; 0 without one."""
    LU, pivots = lu_factor(x, pivot=pivot)
    is_zero = diagonal(LU) == 0
    if is_zero.shape[-1] == 0:
        return LUFactorExResult(LU, pivots, _weft.sum(is_zero, -1).to(_weft.int32))
    first = _weft.argmax(is_zero.to(_weft.int32), axis=-1) + 1
    info = _weft.where(_weft.any(is_zero, axis=-1), first, 0).to(_weft.int32)
    failed = _weft.any(info != 0)
    if check_errors and (failed.full_tensor() if failed.is_sharded else failed):
        raise ValueError("lu_factor_ex: a diagonal of U has a zero, expected none")
    return LUFactorExResult(LU, pivots, info)


def lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """Solves A @ X = B, or X @ A = B with left=False, by the result of lu_factor(A); by the
    adjoint of A with adjoint=True."""
    if left:
        return _weft._linalg_lu_solve(LU, pivots, B, adjoint)
    return _weft._linalg_lu_solve(LU, pivots, _tensor_of(B).mH, not adjoint).mH


def solve_ex(x1, x2, *, left=True, check_errors=False):
    """The solution, and info: not 0 for a singular matrix, which gives inf or NaN; with
    check_errors=True a ValueError."""
    if check_errors:
        solve(x1, x2, left=left)
    LU, pivots, info = lu_factor_ex(x1)
    x1, x2 = _tensor_of(x1), _tensor_of(x2)
    may_be = x2.ndim > 1 and x2.shape == x1.shape[:-1]
    is_batch = may_be and (x2.shape[-2] != x1.shape[-2] or x1.numel() == 0)
    is_vector = x2.ndim == 1 or is_batch
    column = _weft.unsqueeze(x2, -1) if is_vector else x2
    made = lu_solve(LU, pivots, column, left=left or is_vector)
    return SolveExResult(_weft.squeeze(made, -1) if is_vector else made, info)


def svd(x, full_matrices=True, *, driver=None):
    """(U, S, Vh): x = U @ diag(S) @ Vh with S in descending order; U and Vh are square unless
    full_matrices=False. LAPACK's gesdd for any `driver`."""
    return _weft._linalg_svd(x, full_matrices=full_matrices)


def _is_upper(what, triangle):
    if triangle not in ("L", "U"):
        raise ValueError(f"{what}: UPLO is {triangle!r}, expected 'L' or 'U'")
    return triangle == "U"


def eigh(x, UPLO="L"):
    """(eigenvalues, eigenvectors): ascending, and columns, of symmetric (complex: Hermitian)
    matrices, of which the lower triangle is read, or the upper one."""
    return _weft._linalg_eigh(x, _is_upper("eigh", UPLO))


def eigvalsh(x, UPLO="L"):
    """Eigenvalues of symmetric matrices, ascending."""
    return _weft._linalg_eigvalsh(x, _is_upper("eigvalsh", UPLO))


def _whole(x):
    """The Hermitian matrix of which x has the lower triangle."""
    half = (_weft.tril(x) + _weft.tril(x, k=-1)) * 0.5  # the diagonal of the sum is real
    return half + half.mH


def pinv(x, rcond=None, *, atol=None, rtol=None, hermitian=False):
    """The pseudo-inverse. Singular values of at most atol, or rtol (max(m, n) eps unless one of
    both is given) times the greatest one, count as 0."""
    x = _whole(x) if hermitian else x
    return _weft._linalg_pinv(x, rcond if rtol is None else rtol, atol)


def matrix_rank(x, tol=None, *, atol=None, rtol=None, hermitian=False):
    """The number (int64) of singular values that do not count as 0, as in pinv; `tol` is atol."""
    x = _whole(x) if hermitian else x
    return _weft._linalg_matrix_rank(x, rtol, tol if atol is None else atol)


def lstsq(x1, x2, rcond=None, *, driver=None):
    """(solution, residuals, rank, singular_values): the X of least norm among those with the least
    norm of x1 @ X - x2, by singular values for any `driver`; of at most rcond of the greatest one,
    they count as 0. The residuals are sums of squares, and empty unless x1 has more rows than
    columns."""
    x1, x2 = _tensor_of(x1), _tensor_of(x2)
    solution = _weft._linalg_lstsq(x1, x2, rcond)
    if x1.shape[-2] <= x1.shape[-1]:
        empty = _weft.empty((0,), dtype=solution.dtype)
        return LstsqResult(solution, empty, matrix_rank(x1, rtol=rcond), svdvals(x1))
    difference = matmul(x1, solution) - x2
    squares = _weft.real(difference * _weft.conj(difference))
    residuals = _weft.sum(squares, -1 if x2.ndim == 1 else -2)
    return LstsqResult(solution, residuals, matrix_rank(x1, rtol=rcond), svdvals(x1))


def cg(A, b, x0=None, *, rtol=1e-5, atol=0.0, maxiter=None, M=None):
    """(x, steps, residual, converged): solves A @ x = b by conjugate gradients for a symmetric
    positive definite A, a matrix or a function of vectors. b is [n], or [n, k] with a system for
    each column. A column has converged where the method's own residual is at most
    max(rtol |b|, atol); `residual` is the greatest |b - A @ x| / |b|. maxiter is 10 n unless given.
    M is an approximate inverse of A, also a matrix or a function."""
    return CGResult(*_weft._linalg_cg(A, b, x0, rtol, atol, maxiter, M))


def eigsh(A, k=6, *, largest=True, v0=None, tol=0.0, ncv=None, maxiter=300):
    """(eigenvalues, eigenvectors): the k greatest, or least, eigenvalues in ascending order, and
    columns, of a symmetric matrix, or of a function of vectors, which needs a first vector v0. By
    Lanczos with thick restarts, with ncv vectors at a time (max(2 k + 1, 20) unless given).
    RuntimeError where the errors are not below tol |A| (100 eps for 0) after maxiter restarts."""
    return _weft._linalg_eigsh(A, k, largest, v0, tol, ncv, maxiter)


def svd_lowrank(A, q=6, niter=2, M=None):
    """(U, S, V): the q greatest singular values of A, or of A - M, and their vectors as columns, by
    products with q random vectors and niter iterations of the power method."""
    made = _weft._linalg_svd_lowrank(A if M is None else _tensor_of(A) - M, q, niter)
    return SVDLowRankResult(made.U, made.S, made.Vh.mH)


def pca_lowrank(A, q=None, center=True, niter=2):
    """(U, S, V) of svd_lowrank for the rows of A, minus their mean unless center=False; q is
    min(6, m, n) unless given. A @ V are the principal components."""
    A = _tensor_of(A)
    q = min(6, *A.shape[-2:]) if q is None else q
    mean = _weft.mean(A, axis=-2, keepdims=True) if center else None
    return svd_lowrank(A, q, niter, mean)


def cond(x, p=None):
    """The condition number: the matrix norm of order p (2 unless given) times that of the
    inverse."""
    if p in ("fro", "nuc"):
        inverse, info = _weft._linalg_inv_ex(x)
        product = matrix_norm(x, ord=p) * matrix_norm(inverse, ord=p)
        return _weft.where(info == 0, product, float("inf"))
    return _weft._linalg_cond(x, 2.0 if p is None else p)


def multi_dot(tensors, *more):
    """The product of matrices (the first and the last may be vectors) in the order with the fewest
    multiplications."""
    return _weft._linalg_multi_dot([tensors, *more] if more else tensors)


def matrix_norm(x, ord="fro", axis=(-2, -1), keepdims=False):
    """Norms of the matrices in two dims: "fro", "nuc" (the sum of singular values), 2 and -2 (the
    largest and smallest), 1 and -1 (sums of magnitudes of columns), inf and -inf (of rows)."""
    x = _tensor_of(x)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if len(axes) != 2:
        raise ValueError(f"matrix_norm: axis is {_described(axis)}, expected two dims")
    if axes != (-2, -1):
        places = sorted(d % x.ndim for d in axes) if x.ndim else []
        x = _weft.moveaxis(x, axes, (-2, -1))
    made = _weft.matrix_norm(x, ord=ord, keepdims=keepdims)
    return _weft.moveaxis(made, (-2, -1), tuple(places)) if keepdims and axes != (-2, -1) else made


def vector_norm(x, ord=2, axis=None, keepdims=False, *, dtype=None):
    """Over `axis` (all dims unless given): the ord-th root of the sum of magnitudes to that power;
    inf and -inf the largest and smallest magnitude, 0 the number of nonzero elements."""
    x = _tensor_of(x) if dtype is None else _tensor_of(x).to(dtype)
    axis = axis if x.ndim else None
    return _weft.vector_norm(x, ord=ord, axis=axis, keepdims=keepdims)


def vander(x, *, N=None):
    """The powers 0 to N - 1 (as many as elements unless given) of each element, in the last dim."""
    x = _tensor_of(x)
    if x.ndim == 0:
        raise ValueError("vander: the tensor is (), expected at least one dim")
    return x[..., None] ** _weft.arange(x.shape[-1] if N is None else N)


def norm(x, ord=None, axis=None, keepdims=False, *, dtype=None):
    """vector_norm; matrix_norm where `ord` is given for a matrix, or `axis` has two dims and `ord`
    is given."""
    x = _tensor_of(x) if dtype is None else _tensor_of(x).to(dtype)
    is_pair = isinstance(axis, (tuple, list)) and len(axis) == 2
    if ord is not None and (is_pair or (axis is None and x.ndim == 2)):
        return matrix_norm(x, ord, axis if is_pair else (-2, -1), keepdims)
    return vector_norm(x, 2 if ord is None else ord, axis, keepdims)


def tensorinv(x, ind=2):
    """The inverse of the matrix whose rows are the first `ind` dims and whose columns are the
    others."""
    x = _tensor_of(x)
    rows, columns = tuple(x.shape[:ind]), tuple(x.shape[ind:])
    size = 1
    for n in rows:
        size *= n
    return _weft.reshape(inv(_weft.reshape(x, (size, -1))), columns + rows)


def tensorsolve(x1, x2, axes=None):
    """X with tensordot(x1, X, X.ndim) = x2; dims `axes` of x1 are moved to its end first."""
    x1, x2 = _tensor_of(x1), _tensor_of(x2)
    if axes is not None:
        x1 = _weft.moveaxis(x1, tuple(axes), tuple(range(-len(axes), 0)))
    rest = tuple(x1.shape[x2.ndim :])
    flat = _weft.reshape(x2, (-1,))
    return _weft.reshape(solve(_weft.reshape(x1, (flat.shape[0], -1)), flat), rest)


_accept_words(globals())
