# SPDX-License-Identifier: Apache-2.0
"""The Python array API standard, 2024.12, where it is more than the engine's own functions.

Functions that are bound in the standard's way already (add, exp, max, where, ...) need nothing
here."""

from math import e, inf, nan, pi

from weft import _weft
from weft._array_api import _creation, _dtypes
from weft._array_api._creation import *
from weft._array_api._dtypes import *
from weft._array_api._dtypes import KINDS as _KINDS
from weft._arguments import accept_words as _accept_words
from weft._arguments import described as _described, on_device as _on_device

newaxis = None

__all__ = ["e", "inf", "nan", "newaxis", "pi"]
__all__ += _creation.__all__
__all__ += _dtypes.__all__

_accept_words(globals())

__array_api_version__ = "2024.12"

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
_MOST_DIMS = 32
# These leave out bfloat16 and float16, which the standard does not define.
_DTYPES = {
    dtype.name: dtype
    for kind in ("bool", "numeric")
    for dtype in _KINDS[kind]
    if dtype.itemsize > 2 or not dtype.is_floating_point
}


class _Namespace:
    """The result of `__array_namespace_info__`."""

    def capabilities(self):
        """The optional features, and which are supported."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": _MOST_DIMS,
        }

    def default_device(self):
        """The device on which tensors are made by default."""
        return _weft.Device("cpu")

    def default_dtypes(self, *, device=None):
        """The default dtypes."""
        return {
            "real floating": _weft.float32,
            "complex floating": _weft.complex64,
            "integral": _weft.int64,
            "indexing": _weft.int64,
        }

    def devices(self):
        """The devices that compute."""
        gpus = range(_weft.device_count("cuda"))
        return [_weft.Device("cpu"), *(_weft.Device(f"cuda:{i}") for i in gpus)]

    def dtypes(self, *, device=None, kind=None):
        """{name: dtype} of all dtypes of the standard, or of those of one or several kinds of
        `isdtype`."""
        kinds = kind if isinstance(kind, tuple) else (kind,)
        for one in kinds:
            if one is not None and one not in _KINDS:
                raise ValueError(
                    f"dtypes: kind is {_described(one)}, expected one of {', '.join(_KINDS)}"
                )
        return {
            name: dtype
            for name, dtype in _DTYPES.items()
            if kind is None or any(dtype in _KINDS[one] for one in kinds)
        }


def __array_namespace_info__():
    """Capabilities, devices and dtypes of this namespace."""
    return _Namespace()


def _array_namespace(self, /, *, api_version=None):
    """The namespace of functions for this tensor: the module weft. ValueError for a version of the
    standard that it does not follow."""
    import weft
    from weft import _differing

    if api_version is not None and api_version not in _VERSIONS:
        raise ValueError(
            f"__array_namespace__: version is {_described(api_version)}, expected one of "
            f"{', '.join(_VERSIONS)}"
        )
    _differing.waiting.clear()  # who asks for the standard's namespace knows its meaning
    return weft


def _to_device(self, device, /, *, stream=None):
    """The same values on `device`; the tensor itself when it is already there. ValueError when
    there is no such device."""
    return _on_device(self, device)


_weft.Tensor.__array_namespace__ = _array_namespace
_weft.Tensor.to_device = _to_device
