# SPDX-License-Identifier: Apache-2.0
"""Methods that change their tensor, over the functions that make a new one."""

from weft import _weft
from weft._words import renamed

NAMES = (
    "addmm cumprod cumsum index_add index_copy index_fill index_put index_reduce masked_fill "
    "masked_scatter scatter scatter_add scatter_reduce tril triu"
).split()


def _changing(name, function):
    def changed(self, *given, **named):
        self[...] = function(self, *given, **named)
        return self

    changed.__doc__ = f"The tensor becomes what `{name}` of it gives."
    return renamed(changed, f"{name}_")


def add_in_place_methods(namespace):
    """Methods NAME_ by the functions of `namespace`."""
    for name in NAMES:
        setattr(_weft.Tensor, f"{name}_", _changing(name, namespace[name]))
