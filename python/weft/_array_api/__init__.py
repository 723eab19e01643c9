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
    meshgrid,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from weft._array_api._dtypes import astype, can_cast, finfo, iinfo, isdtype, result_type
from weft._array_api._elementwise import clip, positive, reciprocal
from weft._array_api._inspection import __array_api_version__, __array_namespace_info__
from weft._array_api._manipulation import (
    broadcast_arrays,
    expand_dims,
    moveaxis,
    repeat,
    reshape,
    roll,
    stack,
    tile,
    unstack,
)
from weft._array_api._products import matrix_transpose, tensordot, vecdot
from weft._array_api._searching import (
    argsort,
    count_nonzero,
    nonzero,
    searchsorted,
    sort,
    take,
    take_along_axis,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from weft._array_api._statistics import (
    cumulative_prod,
    cumulative_sum,
    diff,
    prod,
    std,
    sum,
    var,
)
from weft._words import accept_words

newaxis = None

__all__ = [
    "arange",
    "argsort",
    "asarray",
    "astype",
    "broadcast_arrays",
    "can_cast",
    "clip",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "e",
    "empty",
    "empty_like",
    "expand_dims",
    "eye",
    "finfo",
    "from_dlpack",
    "full",
    "full_like",
    "iinfo",
    "inf",
    "isdtype",
    "linspace",
    "matrix_transpose",
    "meshgrid",
    "moveaxis",
    "nan",
    "newaxis",
    "nonzero",
    "ones",
    "ones_like",
    "pi",
    "positive",
    "prod",
    "reciprocal",
    "repeat",
    "reshape",
    "result_type",
    "roll",
    "searchsorted",
    "sort",
    "stack",
    "std",
    "sum",
    "take",
    "take_along_axis",
    "tensordot",
    "tile",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "var",
    "vecdot",
    "zeros",
    "zeros_like",
]

accept_words(globals(), __all__)
