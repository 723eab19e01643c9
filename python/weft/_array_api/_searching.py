# SPDX-License-Identifier: Apache-2.0
"""Where elements are, in which order, and which different ones there are.

What has a shape that depends on the values is computed from the whole on every rank, and comes back
Replicate over the mesh of its operand.
"""

from typing import NamedTuple

import numpy as np

from weft import _weft
from weft._array_api._beside import values_beside, values_of


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: _weft.Tensor
    indices: _weft.Tensor
    inverse_indices: _weft.Tensor
    counts: _weft.Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: _weft.Tensor
    counts: _weft.Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: _weft.Tensor
    inverse_indices: _weft.Tensor


def take(x, indices, /, *, axis=None):
    """Slices `indices` [n] of `axis`, which only a tensor of one dim can leave out; negative ones
    count from the end. ValueError names an index that is outside."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: which axis of {list(x.shape)}?")
        axis = 0
    return _weft._take(x, indices, axis)


def take_along_axis(x, indices, /, *, axis=-1):
    """Element indices[.., i, ..] of `axis` for each element of `indices`, which has as many dims as
    x; the other dims broadcast. ValueError names an index that is outside."""
    return _weft._take_along_dim(x, indices, axis)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    """How many elements over `axis` (all dims unless given) are not zero, NaN among them: int64."""
    marks = x if x.dtype is _weft.bool else _weft.not_equal(x, 0)
    return _weft.sum(marks, axis, keepdims)


def nonzero(x, /):
    """The indices of the elements that are not zero: for each dim a tensor [n] of int64. ValueError
    for a tensor without dims."""
    if x.ndim == 0:
        raise ValueError("nonzero: a tensor without dims has no indices")
    return tuple(values_beside(x, indices) for indices in np.nonzero(values_of(x)))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """Where the elements of x2 would go into x1 [n], which is in order (of indices `sorter` when
    they are given), before or behind equal ones by `side`: int64, of the shape of x2."""
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: x1 is {list(x1.shape)}; it must have one dim")
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side is {side!r}; there are 'left' and 'right'")
    order = None if sorter is None else values_of(sorter)
    found = np.searchsorted(values_of(x1), values_of(x2), side=side, sorter=order)
    return values_beside(x2, found)


def _unique(x):
    found = np.unique_all(values_of(x))
    return UniqueAll(
        values_beside(x, found.values, x.dtype),
        values_beside(x, found.indices),
        values_beside(x, found.inverse_indices),
        values_beside(x, found.counts),
    )


def unique_all(x, /):
    """The different elements in order, the first index of each in the flattened tensor, for each
    element of x which one it is, and how often each is there. NaNs all differ."""
    return _unique(x)


def unique_counts(x, /):
    """The different elements of x in order, and how often each is there. NaNs all differ."""
    found = _unique(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x, /):
    """The different elements of x in order, and for each element of x which one it is. NaNs all
    differ."""
    found = _unique(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x, /):
    """The different elements of x in order: [n]. NaNs all differ."""
    return values_beside(x, np.unique_values(values_of(x)), x.dtype)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    """The elements along `axis` in order, equal ones always in the order they have; NaN counts as
    the greatest. ValueError when x has no such dim."""
    return _weft._sort(x, axis, descending)


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    """The indices (int64) along `axis` that take_along_axis makes `sort` of; equal elements always
    in the order they have. ValueError when x has no such dim."""
    return _weft._argsort(x, axis, descending)
