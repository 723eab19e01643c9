# SPDX-License-Identifier: Apache-2.0
"""Functions made of others, with PyTorch's arguments."""

import functools
import inspect
import re
import types

from weft import _weft
from weft._arguments import accepting, renamed, tensor_of

LISTS = (list, tuple)


def each(function):
    """The function of one tensor, which returns a list for several."""

    @functools.wraps(function)
    def of_each(*tensors):
        if len(tensors) == 1 and not isinstance(tensors[0], LISTS):
            return function(tensors[0])
        tensors = tensors[0] if isinstance(tensors[0], LISTS) else tensors
        return [function(tensor) for tensor in tensors]

    return renamed(of_each, function.__name__)


def without_gradient_option(make):
    """A factory that takes requires_grad, and layout and pin_memory, which mean nothing here."""

    @functools.wraps(make)
    def factory(*given, requires_grad=False, layout=None, pin_memory=None, **named):
        named.pop("memory_format", None)
        made = make(*given, **named)
        return made.requires_grad_() if requires_grad else made

    return renamed(factory, make.__name__.lstrip("_"))


def copying(function, name=None):
    """The function, whose results share no memory with the operand."""

    @functools.wraps(function)
    def copy(input, *given, **named):
        made = function(tensor_of(input), *given, **named)
        return [_weft.clone(x) for x in made] if isinstance(made, tuple) else _weft.clone(made)

    return renamed(copy, f"{name or function.__name__}_copy")


def _takes_tensor_first(function):
    """True when its first argument is a tensor, judged by the name of that argument."""
    try:
        first = next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):
        found = re.match(r"\w+\((\w+):", function.__doc__ or "")
        first = found[1] if found else ""
    return first in ("input", "x", "x1")


def method(function):
    """The function as a method, which takes NumPy's words too; compiled functions do so already."""
    is_written = isinstance(function, types.FunctionType)
    return accepting(function) if is_written else _weft._method(function)


def add_methods(namespace):
    """Functions of a tensor become methods of it, with the meaning that they have in `namespace`,
    where the engine's Tensor lacks them or has a function of `weft`."""
    made = {}
    for name, function in list(namespace.items()):
        is_own = hasattr(_weft.Tensor, name) and name not in _weft._METHODS
        if name.startswith("_") or name.endswith("_like") or is_own:
            continue
        if function is getattr(_weft, name, None) and name in _weft._METHODS:
            continue
        if isinstance(function, type) or not callable(function) or inspect.ismodule(function):
            continue
        if _takes_tensor_first(function):
            bound = made[id(function)] = made.get(id(function)) or method(function)
            setattr(_weft.Tensor, name, bound)
            if isinstance(function, types.FunctionType):
                namespace[name] = bound


# Functions of which methods that change their tensor are made.
_IN_PLACE = (
    "addmm cumprod cumsum index_add index_copy index_fill index_put index_reduce masked_fill "
    "masked_scatter round scatter scatter_add scatter_reduce tril triu"
).split()


def _changing(name, function):
    def changed(self, *given, **named):
        self[...] = function(self, *given, **named)
        return self

    changed.__doc__ = f"The tensor becomes what `{name}` of it gives."
    return renamed(changed, f"{name}_")


def add_in_place_methods(namespace):
    """Methods NAME_ by the functions of `namespace`."""
    for name in _IN_PLACE:
        setattr(_weft.Tensor, f"{name}_", _changing(name, namespace[name]))


class _Elements(type(1)):
    """The number of elements of a tensor, as the array API's `size`; called, PyTorch's sizes."""

    def __call__(self, dim=None):
        return self.shape if dim is None else self.shape[dim]


def elements_and_size(self):
    """The number of elements, which can be called for the shape."""
    made = _Elements(self.numel())
    made.shape = self.shape
    return made
