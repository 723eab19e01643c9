# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions that are not ops of the engine; the others are bound directly."""

from weft import _weft
from weft._array_api._beside import tensor_of
from weft._array_api._dtypes import iinfo, isdtype


def _bound_within(x, bound, keeps_all, keeps_none):
    """Converts a bound for an integer dtype: None if it keeps all values; ValueError if it keeps
    none."""
    if not isinstance(bound, (int, float)) or not isdtype(x.dtype, "integral"):
        return bound
    limits = iinfo(x.dtype)
    if keeps_all(bound, limits):
        return None
    if keeps_none(bound, limits):
        raise ValueError(f"clip: bound {bound} lies beyond {x.dtype.name}")
    return bound


def clip(x, /, min=None, max=None):
    """x limited to [min, max] (tensors or numbers that broadcast, or None). ValueError for numbers
    that exclude all values of an integer dtype."""
    if min is not None:
        min = _bound_within(x, min, lambda b, i: b <= i.min, lambda b, i: b > i.max)
    if max is not None:
        max = _bound_within(x, max, lambda b, i: b >= i.max, lambda b, i: b < i.min)
    result = tensor_of(x) if min is None else _weft.maximum(x, min)
    return result if max is None else _weft.minimum(result, max)


def positive(x, /):
    """+x: x itself."""
    return tensor_of(x)


def reciprocal(x, /):
    """1 / x for each element; float32 for integers."""
    return _weft.divide(1, x)
