# SPDX-License-Identifier: Apache-2.0
"""Functions made of others, with PyTorch's arguments."""

import functools
import inspect
import re
import types

from weft import _weft
from weft._arguments import accepting, renamed, tensor_of

LISTS = (list, tuple)


def of_scalars(function):
    """The function, which takes a tensor without dims as one of one element, dims 0 and -1; and no
    dims as all."""

    @functools.wraps(function)
    def taking(input, *given, **named):
        if given and given[0] in ((), []):
            given = (None, *given[1:])
        if named.get("dim") in ((), []):
            named["dim"] = None
        if isinstance(input, _weft.Tensor) and input.ndim == 0 and (given or named):
            made = function(_weft.unsqueeze(input, 0), *given, **named)
            if isinstance(made, tuple):
                return type(made)(*(_weft.reshape(one, ()) for one in made))
            return _weft.reshape(made, ())
        return function(input, *given, **named)

    return renamed(taking, function.__name__)


def as_dtype(function):
    """The function, whose operand is cast first where a dtype is given."""

    @functools.wraps(function)
    def casting(input, *given, dtype=None, **named):
        return function(input if dtype is None else _weft.astype(input, dtype), *given, **named)

    return renamed(casting, function.__name__)


def with_alpha(function):
    def scaled(input, other, *, alpha=1):
        return function(input, other if alpha == 1 else _weft.multiply(other, alpha))

    return scaled


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

    return renamed(factory, make.__name__)


def itself(name):
    def same(input):
        return input

    same.__doc__ = "The tensor itself: there are no complex dtypes."
    return renamed(same, name)


def copying(function):
    """The function, whose results share no memory with the operand."""

    @functools.wraps(function)
    def copy(input, *given, **named):
        made = function(tensor_of(input), *given, **named)
        return [_weft.clone(x) for x in made] if isinstance(made, tuple) else _weft.clone(made)

    return renamed(copy, f"{function.__name__}_copy")


def _takes_tensor_first(function):
    """Whether its first argument is a tensor, by the name of that."""
    try:
        first = next(iter(inspect.signature(function).parameters), "")
    except (TypeError, ValueError):
        found = re.match(r"\w+\((\w+):", function.__doc__ or "")
        first = found[1] if found else ""
    return first in ("input", "x", "x1")


def method(name, function):
    """The function as a method, which takes NumPy's words too; compiled functions do so already,
    but do not bind by themselves."""
    if isinstance(function, types.FunctionType):
        function = accepting(function)

    @functools.wraps(function)
    def bound(self, *given, **named):
        return function(self, *given, **named)

    return renamed(bound, name)


def add_methods(namespace):
    """Functions of a tensor become methods of it where the engine's Tensor lacks them, with the
    meaning that they have in `namespace`."""
    for name, function in list(namespace.items()):
        if name.startswith("_") or name.endswith("_like") or hasattr(_weft.Tensor, name):
            continue
        if isinstance(function, type) or not callable(function) or inspect.ismodule(function):
            continue
        if _takes_tensor_first(function):
            setattr(_weft.Tensor, name, method(name, function))


def parts(whole, dim_of):
    """A function that cuts into equal parts by `whole`, or before indices of a dim."""

    def cut(input, indices_or_sections):
        if isinstance(indices_or_sections, LISTS):
            return _weft.tensor_split(input, list(indices_or_sections), dim_of(input))
        return whole(input, indices_or_sections)

    cut.__doc__ = "Equal parts, or those that end before these indices."
    return renamed(cut, whole.__name__)


# Functions of which methods that change their tensor are made.
_IN_PLACE = (
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
    for name in _IN_PLACE:
        setattr(_weft.Tensor, f"{name}_", _changing(name, namespace[name]))


class _Elements(type(1)):
    """How many elements a tensor has, as the array API's `size`; called, PyTorch's sizes."""

    def __call__(self, dim=None):
        return self.shape if dim is None else self.shape[dim]


def elements_and_size(self):
    """The number of elements, which can be called for the shape."""
    made = _Elements(self.numel())
    made.shape = self.shape
    return made
