# SPDX-License-Identifier: Apache-2.0
"""Properties of dtypes, and conversions between them."""

from typing import NamedTuple

from weft import _weft
from weft._arguments import described

__all__ = ["can_cast", "finfo", "iinfo", "isdtype", "result_type"]

class finfo_object(NamedTuple):
    """The result of `finfo`: bits, eps, max, min, smallest_normal, dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: _weft.DType


def _finfo(dtype, fraction, exponent):
    """Limits by the bits of the fraction and the largest exponent."""
    eps = 2.0**-fraction
    most = (2 - eps) * 2.0**exponent
    return finfo_object(8 * dtype.itemsize, eps, most, -most, 2.0 ** (1 - exponent), dtype)


_FLOATING = {
    _weft.float32: _finfo(_weft.float32, 23, 127),
    _weft.bfloat16: _finfo(_weft.bfloat16, 7, 127),
    _weft.float16: _finfo(_weft.float16, 10, 15),
    _weft.float64: _finfo(_weft.float64, 52, 1023),
}
# Complex dtypes have the limits of their parts.
_COMPLEX = {
    _weft.complex64: _FLOATING[_weft.float32],
    _weft.complex128: _FLOATING[_weft.float64],
}
_FLOAT8 = {
    # E4M3 has no infinity: its greatest exponent holds numbers too.
    _weft.float8_e4m3fn: finfo_object(8, 2.0**-3, 448.0, -448.0, 2.0**-6, _weft.float8_e4m3fn),
    _weft.float8_e5m2: _finfo(_weft.float8_e5m2, 2, 15),
}
_SIGNED = (_weft.int8, _weft.int16, _weft.int32, _weft.int64)
_UNSIGNED = (_weft.uint8, _weft.uint16, _weft.uint32, _weft.uint64)


class iinfo_object(NamedTuple):
    """The result of `iinfo`: bits, max, min, dtype."""

    bits: int
    max: int
    min: int
    dtype: _weft.DType


def _limits(dtype):
    bits = 8 * dtype.itemsize
    least = 0 if dtype in _UNSIGNED else -(2 ** (bits - 1))
    return iinfo_object(bits, least + 2**bits - 1, least, dtype)


_INTEGRAL = {dtype: _limits(dtype) for dtype in (*_SIGNED, *_UNSIGNED)}
KINDS = {
    "bool": (_weft.bool,),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": tuple(_INTEGRAL),
    "real floating": tuple(_FLOATING),
    "complex floating": tuple(_COMPLEX),
    "numeric": (*_INTEGRAL, *_FLOATING, *_COMPLEX),
}


def dtype_of(what, given):
    """The dtype of a tensor or of a name, or the dtype itself. TypeError for anything else."""
    dtype = getattr(given, "dtype", given)
    if isinstance(dtype, str):
        return _weft.dtype_named(dtype)
    if not isinstance(dtype, _weft.DType):
        raise TypeError(f"{what}: argument is {described(given)}, expected a tensor or a dtype")
    return dtype


def check_fits(what, value, dtype):
    """ValueError when a number is out of an integer dtype's range, or complex for a real dtype."""
    if isinstance(value, complex) and not dtype.is_complex:
        raise ValueError(f"{what}: value is complex, expected a real number for {dtype.name}")
    limits = _INTEGRAL.get(dtype)
    if limits and not limits.min <= value <= limits.max:
        shown = " ".join(str(value).split())
        raise ValueError(
            f"{what}: value is {shown}, expected {limits.min} to {limits.max} for {dtype.name}"
        )


def can_cast(from_, to):
    """Returns True when promotion of `to` with `from_` (a dtype or a tensor) results in `to`."""
    to = dtype_of("can_cast", to)
    from_ = dtype_of("can_cast", from_)
    if {from_, to} & {*_FLOAT8}:
        return from_ is to
    if {from_, to} & {_weft.uint64} and {from_, to} & {*_SIGNED}:
        return False  # no dtype holds the values of both
    return _weft.promote(from_, to) is to


def finfo(type):
    """Limits of a floating dtype, or of a tensor's dtype; ValueError for other dtypes."""
    dtype = dtype_of("finfo", type)
    limits = _FLOATING.get(dtype) or _COMPLEX.get(dtype) or _FLOAT8.get(dtype)
    if limits is None:
        raise ValueError(f"finfo: dtype is {dtype.name}, expected a floating one; see iinfo")
    return limits


def iinfo(type):
    """Limits of an integer dtype, or of a tensor's dtype; ValueError for other dtypes."""
    dtype = dtype_of("iinfo", type)
    if dtype not in _INTEGRAL:
        raise ValueError(f"iinfo: dtype is {dtype.name}, expected an integer one; see finfo")
    return _INTEGRAL[dtype]


def isdtype(dtype, kind):
    """Returns True when a dtype is of a kind: another dtype, "bool", "signed integer", "unsigned
    integer", "integral", "real floating", "complex floating", "numeric", or a tuple of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, _weft.DType):
        return dtype is kind
    if kind not in KINDS:
        raise ValueError(f"isdtype: kind is {described(kind)}, expected one of {', '.join(KINDS)}")
    return dtype in KINDS[kind]


def result_type(*arrays_and_dtypes):
    """The dtype to which all arguments promote. Python numbers are weak: an int makes bool int64, a
    float makes integers float32, a complex number makes the rest complex. ValueError when all
    arguments are numbers."""
    numbers = {type(x) for x in arrays_and_dtypes if isinstance(x, (bool, int, float, complex))}
    dtypes = [
        dtype_of("result_type", x)
        for x in arrays_and_dtypes
        if not isinstance(x, (bool, int, float, complex))
    ]
    if not dtypes:
        raise ValueError(
            "result_type: all arguments are numbers, expected a tensor or a dtype among them"
        )
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = _weft.promote(result, dtype)
    if complex in numbers and not result.is_complex:
        return _weft.promote(result, _weft.complex64)
    if float in numbers and not (result.is_floating_point or result.is_complex):
        return _weft.float32
    if int in numbers and result is _weft.bool:
        return _weft.int64
    return result
