# SPDX-License-Identifier: Apache-2.0
"""Products of matrices and vectors."""

import math

from weft import _weft
from weft._array_api._beside import normalized_axis


def matrix_transpose(x, /):
    """x [..., m, n] as [..., n, m]; a view. ValueError when x has fewer than two dims."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose: the tensor is {list(x.shape)}; it needs two dims")
    return _weft.transpose(x, -2, -1)


def _contracted(x1, x2, axes):
    """The pairs of dims to sum over."""
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ValueError(
                f"tensordot: {axes} axes of {list(x1.shape)} and {list(x2.shape)}, which has fewer"
            )
        return list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    first, second = ([one] if isinstance(one, int) else list(one) for one in axes)
    if len(first) != len(second):
        raise ValueError(f"tensordot: {len(first)} axes of one and {len(second)} of the other")
    return (
        [normalized_axis("tensordot", axis, x1.ndim) for axis in first],
        [normalized_axis("tensordot", axis, x2.ndim) for axis in second],
    )


def tensordot(x1, x2, /, *, axes=2):
    """Sums products of x1 and x2 over the last `axes` dims of x1 and the first of x2, or over pairs
    of dims (dims of x1, dims of x2). The result has the other dims of x1, then those of x2.
    ValueError names sizes that differ."""
    first, second = _contracted(x1, x2, axes)
    for a, b in zip(first, second):
        if x1.shape[a] != x2.shape[b]:
            raise ValueError(
                f"tensordot: dim {a} of {list(x1.shape)} and dim {b} of {list(x2.shape)} differ"
            )
    kept1 = [axis for axis in range(x1.ndim) if axis not in first]
    kept2 = [axis for axis in range(x2.ndim) if axis not in second]
    shape1 = tuple(x1.shape[axis] for axis in kept1)
    shape2 = tuple(x2.shape[axis] for axis in kept2)
    summed = math.prod(x1.shape[axis] for axis in first)
    rows = _weft.reshape(_weft.permute_dims(x1, kept1 + first), (math.prod(shape1), summed))
    columns = _weft.reshape(_weft.permute_dims(x2, second + kept2), (summed, math.prod(shape2)))
    return _weft.reshape(_weft.matmul(rows, columns), shape1 + shape2)


def vecdot(x1, x2, /, *, axis=-1):
    """Sums products along `axis`, which is negative, of tensors whose other dims broadcast.
    ValueError when the sizes of that dim differ."""
    if axis >= 0 and x1.ndim == x2.ndim:
        axis -= x1.ndim
    if not -min(x1.ndim, x2.ndim) <= axis < 0:
        raise ValueError(
            f"vecdot: axis {axis} is none of {list(x1.shape)} and {list(x2.shape)} from the end"
        )
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: dim {axis} of {list(x1.shape)} and of {list(x2.shape)} differ")
    dtype = _weft.promote(x1.dtype, x2.dtype)
    if dtype in (_weft.bfloat16, _weft.float16):
        x1, x2 = _weft.astype(x1, _weft.float32), _weft.astype(x2, _weft.float32)
    total = _weft.sum(_weft.multiply(x1, x2), axis)
    return _weft.astype(total, dtype)
