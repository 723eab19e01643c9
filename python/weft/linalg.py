# SPDX-License-Identifier: Apache-2.0
"""The array standard's linear algebra, as far as it is made of products and sums.

What decomposes a matrix is not here: docs/array-api.md says why.
"""

import math

from weft import _weft
from weft._array_api import matrix_transpose, sum, tensordot, vecdot
from weft._weft import matmul
from weft._words import accept_words

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_transpose",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def cross(x1, x2, /, *, axis=-1):
    """The cross product of vectors of 3 along `axis`, counted from the end; other dims broadcast.
    ValueError when that dim of one is not 3."""
    if axis >= 0 and x1.ndim == x2.ndim:
        axis -= x1.ndim
    for x in (x1, x2):
        if not -x.ndim <= axis < 0 or x.shape[axis] != 3:
            raise ValueError(f"cross: dim {axis} of {list(x.shape)} is not 3")
    a = [_weft.slice(x1, axis, i, i + 1) for i in range(3)]
    b = [_weft.slice(x2, axis, i, i + 1) for i in range(3)]
    parts = [
        _weft.subtract(_weft.multiply(a[i], b[j]), _weft.multiply(a[j], b[i]))
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    return _weft.concat(parts, axis)


def _check_matrix(what, x):
    if x.ndim < 2:
        raise ValueError(f"{what}: the tensor is {list(x.shape)}; it needs two dims")


def diagonal(x, /, *, offset=0):
    """Elements (i, i + offset) of the last two dims: [..., n] of [..., rows, columns]. ValueError
    when x has fewer than two dims."""
    _check_matrix("diagonal", x)
    rows, columns = x.shape[-2:]
    count = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    start = (offset if offset >= 0 else -offset * columns) if count else 0
    flat = _weft.reshape(x, (*x.shape[:-2], rows * columns))
    stop = start + (count - 1) * (columns + 1) + 1 if count else 0
    return _weft.slice(flat, -1, start, stop, columns + 1)


def trace(x, /, *, offset=0, dtype=None):
    """The sum of elements (i, i + offset) of the last two dims; integers in int64 unless `dtype` is
    given. ValueError when x has fewer than two dims."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def outer(x1, x2, /):
    """x1 [m] times x2 [n]: [m, n]. ValueError when one has not one dim."""
    for x in (x1, x2):
        if x.ndim != 1:
            raise ValueError(f"outer: the tensor is {list(x.shape)}; it must have one dim")
    return _weft.multiply(_weft.unsqueeze(x1, 1), x2)


def _sums_of_magnitudes(x, axis, of_sums, keepdims):
    """max or min, over one of the last two dims, of sums over the other."""
    sums = _weft.sum(_weft.abs(x), axis, True)
    over = of_sums(sums, (-2, -1), keepdims)
    return _weft.astype(over, x.dtype if x.dtype.is_floating_point else _weft.float32)


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """Norms of the matrices in the last two dims: "fro", the root of the sum of squares; 1 and -1,
    the largest and least sum of magnitudes of a column; inf and -inf, of a row. Raises ValueError
    for an order that needs singular values."""
    _check_matrix("matrix_norm", x)
    if ord == "fro":
        return _weft.norm(x, (-2, -1), keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ValueError(
            f"matrix_norm: there is no order {ord!r}; there are 'fro', 1, -1, inf, -inf"
        )
    of_sums = _weft.max if ord > 0 else _weft.min
    return _sums_of_magnitudes(x, -2 if abs(ord) == 1 else -1, of_sums, keepdims)


def _power_from_zero(x, exponent):
    """x^exponent for x and exponent of at least 0, with the gradient 0 where x is 0."""
    x = _weft.abs(x)  # a Partial is added up here, once for all that follows
    is_zero = _weft.equal(x, 0)
    return _weft.where(is_zero, 0, _weft.pow(_weft.where(is_zero, 1, x), exponent))


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """Over `axis` (all dims unless given): the ord-th root of the sum of magnitudes to that power;
    inf and -inf the largest and least magnitude, 0 how many are not zero. Of integers in
    float32. The gradient of zeros is 0."""
    if ord == 2:
        return _weft.norm(x, axis, keepdims)
    if not x.dtype.is_floating_point:
        x = _weft.astype(x, _weft.float32)
    if ord == 0:
        return _weft.astype(_weft.sum(_weft.not_equal(x, 0), axis, keepdims), x.dtype)
    magnitudes = _weft.abs(x)
    if math.isinf(ord):
        return (_weft.max if ord > 0 else _weft.min)(magnitudes, axis, keepdims)
    if ord == 1:
        return _weft.sum(magnitudes, axis, keepdims)
    power = _power_from_zero if 0 < ord < 1 else _weft.pow
    root = _power_from_zero if ord > 0 else _weft.pow
    return root(_weft.sum(power(magnitudes, ord), axis, keepdims), 1 / ord)

accept_words(globals(), __all__)
