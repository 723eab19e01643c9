# SPDX-License-Identifier: Apache-2.0
"""Containers, and functions as modules."""

from weft import _weft, functional
from weft._arguments import renamed as _renamed
from weft._weft import Module


class ModuleList(Module):
    """Modules "0", "1", ... for a custom forward to call."""

    def __init__(self, modules=()):
        super().__init__()
        for module in modules:
            self.append(module)

    def append(self, module):
        if not isinstance(module, Module):
            kind = type(module).__name__
            raise TypeError(f"module: item of a list is a {kind}, expected a Module")
        setattr(self, str(len(self)), module)
        return self

    def __len__(self):
        return len(self.named_children())

    def __iter__(self):
        return iter(self.children())

    def __getitem__(self, index):
        return self.children()[index]

    def __setitem__(self, index, module):
        """Another child in the place of that one."""
        setattr(self, str(range(len(self))[index]), module)


class ModuleDict(Module):
    """Modules by name, as items and as attributes, for a custom forward to call."""

    def __init__(self, modules=()):
        super().__init__()
        self.update(modules)

    def update(self, modules):
        for name, module in modules.items() if hasattr(modules, "items") else modules:
            self[name] = module

    def __setitem__(self, name, module):
        setattr(self, name, module)

    def __getitem__(self, name):
        child = self._member(name)
        if not isinstance(child, Module):
            raise KeyError(name)
        return child

    def __delitem__(self, name):
        self[name]
        delattr(self, name)

    def __contains__(self, name):
        return isinstance(self._member(name), Module)

    def __len__(self):
        return len(self.named_children())

    def __iter__(self):
        return iter(self.keys())

    def keys(self):
        return [name for name, _ in self.named_children()]

    def values(self):
        return self.children()

    def items(self):
        return self.named_children()


class Identity(Module):
    """Returns its input; takes any arguments of the layer in whose place it is."""

    def __init__(self, *arguments, **named):
        super().__init__()

    def forward(self, x):
        return x


def _of_one(name, function, text):
    """A class of modules that are a function of one tensor."""

    class OfOne(Module):
        __doc__ = text

        def forward(self, x):
            return function(x)

    _renamed(OfOne.forward, f"{name}.forward")
    return _renamed(OfOne, name)


ReLU = _of_one("ReLU", _weft.relu, "max(x, 0).")
SiLU = _of_one("SiLU", _weft.silu, "x * sigmoid(x).")
Sigmoid = _of_one("Sigmoid", _weft.sigmoid, "1 / (1 + exp(-x)).")
Tanh = _of_one("Tanh", _weft.tanh, "The hyperbolic tangent.")


class GELU(Module):
    """x / 2 * (1 + erf(x / sqrt(2))), or its approximation by "tanh"; see functional.gelu."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        return functional.gelu(x, approximate=self.approximate)


class Softmax(Module):
    """exp(x) / sum of exp(x) along `dim`."""

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return functional.softmax(x, self.dim)


class CrossEntropyLoss(Module):
    """(logits [..., classes], targets [...]) -> the mean of -log softmax(logits)[target]; see
    functional.cross_entropy."""

    def __init__(
        self,
        weight=None,
        *,
        ignore_index=_weft.IGNORED_TARGET,
        reduction="mean",
        label_smoothing=0.0,
    ):
        super().__init__()
        self.weight = weight
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, logits, targets):
        return functional.cross_entropy(
            logits,
            targets,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class MSELoss(Module):
    """(x, y) -> the mean of (x - y)^2, their sum, or all of them with reduction="none"."""

    def __init__(self, *, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, x, y):
        return functional.mse_loss(x, y, reduction=self.reduction)
