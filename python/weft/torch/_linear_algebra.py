# SPDX-License-Identifier: Apache-2.0
"""PyTorch's functions of matrices that are not in torch.linalg."""

import weft as _package
from weft import _weft, linalg as _linalg
from weft._arguments import accept_words as _accept_words

cholesky_inverse = _weft.cholesky_inverse
cholesky_solve = _weft.cholesky_solve
det = _weft._linalg_det
matrix_power = _weft._linalg_matrix_power
slogdet = _weft._linalg_slogdet


def cholesky(input, upper=False):
    """linalg.cholesky."""
    return _linalg.cholesky(input, upper=upper)


def inverse(input):
    """linalg.inv."""
    return _linalg.inv(input)


def chain_matmul(*matrices):
    """linalg.multi_dot."""
    return matrices[0] if len(matrices) == 1 else _linalg.multi_dot(matrices)


def logdet(input):
    """The logarithm of the determinant: NaN for a negative one, -inf for 0."""
    sign, logarithm = _linalg.slogdet(input)
    if sign.dtype.is_complex:
        return _weft.log(sign) + logarithm
    return _package.where(sign < 0, float("nan"), logarithm)


def pinverse(input, rcond=1e-15):
    """linalg.pinv."""
    return _linalg.pinv(input, rcond)


def qr(input, some=True):
    """linalg.qr; of square Q with some=False."""
    return _linalg.qr(input, mode="reduced" if some else "complete")


def svd(input, some=True, compute_uv=True):
    """(U, S, V), where linalg.svd returns the adjoint of V; U and V are zeros with
    compute_uv=False."""
    if not compute_uv:
        m, n = input.shape[-2:]
        values, batch = _linalg.svdvals(input), tuple(input.shape[:-2])
        zeros = [_package.zeros((*batch, k, k), dtype=values.dtype) for k in (m, n)]
        return _weft.SVDResult(zeros[0], values, zeros[1])
    u, s, vh = _linalg.svd(input, full_matrices=not some)
    return _weft.SVDResult(u, s, vh.mH)


def lu(A, pivot=True, get_infos=False):
    """(LU, pivots) as linalg.lu_factor, and info with get_infos=True."""
    if get_infos:
        return tuple(_linalg.lu_factor_ex(A, pivot=pivot))
    return _linalg.lu_factor(A, pivot=pivot)


def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """(P, L, U) of the results of lu; empty tensors for what is not asked for."""
    m, n = LU_data.shape[-2:]
    k = min(m, n)
    p = lower = upper = _package.empty((0,), dtype=LU_data.dtype)
    if unpack_data:
        lower = _package.tril(LU_data[..., :k], k=-1) + _identity(LU_data, m, k)
        upper = _package.triu(LU_data[..., :k, :])
    if unpack_pivots:
        one = _identity(LU_data, m, m)
        rest = _package.arange(k + 1, m + 1, dtype=_weft.int32)
        rest = _package.broadcast_to(_like(rest, LU_data), (*LU_pivots.shape[:-1], m - k))
        every = _package.broadcast_to(one, (*LU_pivots.shape[:-1], m, m))
        pivots = _package.concat([LU_pivots, rest], axis=-1)
        p = _linalg.lu_solve(every, pivots, one, adjoint=True)
    return p, lower, upper


def _like(whole, other):
    return _package.distribute(whole, other.device_mesh) if other.is_sharded else whole


def _identity(like, m, n):
    return _like(_package.eye(m, n, dtype=like.dtype), like)


def lu_solve(b, LU_data, LU_pivots):
    """linalg.lu_solve."""
    return _linalg.lu_solve(LU_data, LU_pivots, b)


def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False):
    """(solution, A): linalg.solve_triangular, by A transposed with transpose=True."""
    triangle = A.mT if transpose else A
    is_upper = upper != transpose
    return (
        _linalg.solve_triangular(triangle, b, upper=is_upper, unitriangular=unitriangular),
        A,
    )


def nuclear_norm(input, dim=(-2, -1), keepdim=False):
    """The sum of singular values."""
    return _linalg.matrix_norm(input, "nuc", dim, keepdim)


def frobenius_norm(input, dim=(-2, -1), keepdim=False):
    """The root of the sum of squares over dims."""
    return _weft.vector_norm(input, axis=tuple(dim) or None, keepdims=keepdim)


_accept_words(globals())
