# SPDX-License-Identifier: Apache-2.0
"""Functions of the array API whose namesakes in PyTorch, which methods and weft.torch follow,
return something else by default. The first call of such a function that depends on it warns."""

import functools
import warnings

from weft import _weft


def _has_dim(given, named):
    return len(given) > 1 or bool({"axis", "dim"} & named.keys())


def _always(given, named):
    return True


def _lacks_correction(given, named):
    return "correction" not in named


def _lacks_dim(given, named):
    return len(given) < 3 and not {"axis", "dim"} & named.keys()


_VALUES = ("returns the values along a dim", "return (values, indices)", _has_dim)
_CORRECTION = ("divides by n", "divide by n - 1", _lacks_correction)
# {name: what weft.NAME does, what Tensor.NAME and weft.torch.NAME do, when a call depends on it}
DIFFERENT = {
    "std": _CORRECTION,
    "var": _CORRECTION,
    "max": _VALUES,
    "min": _VALUES,
    "sort": ("returns the values", "return (values, indices)", _always),
    "equal": ("compares element by element", "return one bool", _always),
    "nonzero": ("returns a tensor for each dim", "return one tensor [n, dims]", _always),
    "repeat": ("repeats each element", "repeat the whole tensor, as tile", _lacks_dim),
}
_CURES = dict.fromkeys(("std", "var"), "; correction= chooses")
# Names whose first call has not come yet.
waiting = set(DIFFERENT)


def _warning(name):
    function = getattr(_weft, name)
    own, torchs, depends = DIFFERENT[name]

    @functools.wraps(function)
    def call(*given, **named):
        if name in waiting and depends(given, named):
            waiting.discard(name)
            warnings.warn(
                f"weft.{name} {own}, as in the array API; Tensor.{name} and weft.torch.{name} "
                f"{torchs}, as in PyTorch{_CURES.get(name, '')}",
                stacklevel=2,
            )
        return function(*given, **named)

    call.__module__, call.__qualname__ = "weft", name
    return call


FUNCTIONS = {name: _warning(name) for name in DIFFERENT}
