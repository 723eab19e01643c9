# SPDX-License-Identifier: Apache-2.0
"""Searching, sorting, and distinct elements.

Functions whose result shape depends on the values compute with the full tensor on every rank, and
return tensors that are Replicate over the mesh of the operand.
"""

from typing import NamedTuple

import numpy as np

from weft import _weft
from weft._array_api._beside import values_beside, values_of


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: _weft.Tensor
    indices: _weft.Tensor
    inverse_indices: _weft.Tensor
    counts: _weft.Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: _weft.Tensor
    counts: _weft.Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: _weft.Tensor
    inverse_indices: _weft.Tensor


def take(x, indices, /, *, axis=None):
    """Slices `indices` [n] of `axis`, which is required unless x has one dim; negative indices
    count from the end. ValueError names an index out of bounds."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: which axis of {list(x.shape)}?")
        axis = 0
    return _weft._take(x, indices, axis)


def take_along_axis(x, indices, /, *, axis=-1):
    """Element indices[.., i, ..] of `axis` for each element of `indices`, which has as many dims as
    x; the other dims broadcast. ValueError names an index out of bounds."""
    return _weft._take_along_dim(x, indices, axis)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    """The number of nonzero elements (NaN included) over `axis`, all dims by default; int64."""
    marks = x if x.dtype is _weft.bool else _weft.not_equal(x, 0)
    return _weft.sum(marks, axis, keepdims)


def nonzero(x, /):
    """The indices of the nonzero elements: an int64 tensor [n] for each dim. ValueError for a
    tensor without dims."""
    if x.ndim == 0:
        raise ValueError("nonzero: a tensor without dims has no indices")
    return tuple(values_beside(x, indices) for indices in np.nonzero(values_of(x)))


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    """The positions at which the elements of x2 would be inserted into the sorted x1 [n] (sorted by
    the indices `sorter` if given), before or after equal elements by `side`: int64, with the shape
    of x2."""
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
    """The distinct elements in order, the first index of each in the flattened tensor, the index of
    each element of x among them, and their counts. NaNs are all distinct."""
    return _unique(x)


def unique_counts(x, /):
    """The distinct elements of x in order, and their counts. NaNs are all distinct."""
    found = _unique(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x, /):
    """The distinct elements of x in order, and the index of each element of x among them. NaNs are
    all distinct."""
    found = _unique(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x, /):
    """The distinct elements of x in order: [n]. NaNs are all distinct."""
    return values_beside(x, np.unique_values(values_of(x)), x.dtype)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    """The elements sorted along `axis`, always stably; NaN is the greatest value. ValueError when x
    has no such dim."""
    return _weft._sort(x, axis, descending)


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    """The indices (int64) along `axis` with which take_along_axis returns the result of `sort`;
    always stable. ValueError when x has no such dim."""
    return _weft._argsort(x, axis, descending)
