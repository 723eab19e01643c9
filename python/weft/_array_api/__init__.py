# SPDX-License-Identifier: Apache-2.0
"""The Python array API standard, 2024.12, where it is more than the engine's own functions.

Functions that are bound in the standard's way already (add, exp, max, where, ...) need nothing
here."""

from math import e, inf, nan, pi

from weft._array_api._creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from weft._array_api._dtypes import can_cast, conj, finfo, iinfo, isdtype, result_type
from weft._array_api._inspection import __array_api_version__, __array_namespace_info__
from weft._words import accept_words

newaxis = None

__all__ = [
    "arange",
    "asarray",
    "can_cast",
    "conj",
    "e",
    "empty",
    "empty_like",
    "eye",
    "finfo",
    "from_dlpack",
    "full",
    "full_like",
    "iinfo",
    "inf",
    "isdtype",
    "linspace",
    "nan",
    "newaxis",
    "ones",
    "ones_like",
    "pi",
    "result_type",
    "zeros",
    "zeros_like",
]

accept_words(globals(), __all__)
