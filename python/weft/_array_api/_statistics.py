# SPDX-License-Identifier: Apache-2.0
"""Sums, products and what is made of them."""

import math

from weft import _weft
from weft._array_api._beside import (
    elements_over,
    filled_beside,
    normalized_axes,
    normalized_axis,
)


def _as(x, dtype):
    return x if dtype is None else _weft.astype(x, dtype)


def sum(x, /, axis=None, keepdims=False, *, dtype=None):
    """The sum over `axis` (all dims unless given), of elements as `dtype`; integers and bool sum up
    in int64 unless it is given, floats in their own."""
    return _as(_weft.sum(_as(x, dtype), axis, keepdims), dtype)


def prod(x, /, axis=None, keepdims=False, *, dtype=None):
    """The product over `axis` (all dims unless given), of elements as `dtype`; integers and bool
    multiply in int64 unless it is given."""
    return _as(_weft.prod(_as(x, dtype), axis, keepdims), dtype)


def _cumulative(what, function, x, axis, dtype, initial):
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{what}: which axis of {list(x.shape)}?")
        axis = 0
    axis = normalized_axis(what, axis, x.ndim)
    result = _as(function(_as(x, dtype), axis), dtype)
    if initial is None:
        return result
    shape = tuple(1 if d == axis else size for d, size in enumerate(x.shape))
    return _weft.concat([filled_beside(x, shape, initial, result.dtype), result], axis)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """Sums of the elements up to each along `axis`, which only a tensor of one dim can leave out;
    integers in int64 unless `dtype` is given. `include_initial`: a 0 before them."""
    initial = 0 if include_initial else None
    return _cumulative("cumulative_sum", _weft._cumulative_sum, x, axis, dtype, initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """Products of the elements up to each along `axis`, which only a tensor of one dim can leave
    out; integers in int64 unless `dtype` is given. `include_initial`: a 1 before them."""
    initial = 1 if include_initial else None
    return _cumulative("cumulative_prod", _weft._cumulative_prod, x, axis, dtype, initial)


def _spread(what, x, axis, correction):
    """Differences from the mean, in float32 at least, and what their squares' sum is divided by."""
    wide = x if x.dtype in (_weft.float32, _weft.float64) else _weft.astype(x, _weft.float32)
    count = elements_over(x, normalized_axes(what, axis, x.ndim))
    return _weft.subtract(wide, _weft.mean(wide, axis, True)), max(count - correction, 0.0)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The variance over `axis` (all dims unless given): squares of the differences from the mean,
    summed and divided by their number - correction; of integers in float32."""
    differences, count = _spread("var", x, axis, correction)
    variance = _weft.divide(_weft.sum(_weft.square(differences), axis, keepdims), count)
    return _weft.astype(variance, x.dtype) if x.dtype.is_floating_point else variance


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    """The standard deviation over `axis` (all dims unless given), the square root of `var`; of
    integers in float32. The gradient of equal elements is 0."""
    differences, count = _spread("std", x, axis, correction)
    deviation = _weft.divide(_weft.norm(differences, axis, keepdims), math.sqrt(count))
    return _weft.astype(deviation, x.dtype) if x.dtype.is_floating_point else deviation


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    """Differences of neighbours along `axis`, `n` times over, with `prepend` before and `append`
    behind it; of bool whether they differ. ValueError when n is negative."""
    if n < 0:
        raise ValueError(f"diff: {n} times; at least 0")
    axis = normalized_axis("diff", axis, x.ndim)
    if prepend is not None or append is not None:
        x = _weft.concat([part for part in (prepend, x, append) if part is not None], axis)
    difference = _weft.not_equal if x.dtype is _weft.bool else _weft.subtract
    for _ in range(n):
        size = x.shape[axis]
        x = difference(
            _weft.slice(x, axis, min(1, size), size), _weft.slice(x, axis, 0, max(size - 1, 0))
        )
    return x
