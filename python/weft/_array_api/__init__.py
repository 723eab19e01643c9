# SPDX-License-Identifier: Apache-2.0
"""The Python array API standard, 2024.12, where it is more than the engine's own functions.

Functions that are bound in the standard's way already (add, exp, max, where, ...) need nothing
here."""

from math import e, inf, nan, pi

from weft._array_api import _creation, _dtypes
from weft._array_api._creation import *
from weft._array_api._dtypes import *
from weft._array_api._inspection import __array_api_version__, __array_namespace_info__
from weft._arguments import accept_words as _accept_words

newaxis = None

__all__ = ["e", "inf", "nan", "newaxis", "pi"]
__all__ += _creation.__all__
__all__ += _dtypes.__all__

_accept_words(globals())
