# SPDX-License-Identifier: Apache-2.0
"""Attributes of modules, of which parameters, modules and buffers are the module's own; and copies
of modules."""

import copy
import warnings

from weft import _weft
from weft._weft import LayerNorm, Linear, Module, Parameter, Sequential, Tensor


def _kind_of(member):
    """Parameter or Module when the member is one, else None."""
    return next((kind for kind in (Parameter, Module) if isinstance(member, kind)), None)


def _refuse(self, name, what, value, expected):
    gets = "" if value is None else f" and gets a {type(value).__name__}"
    raise ValueError(
        f"module: {name!r} is a {what} of the {type(self).__name__}{gets}, expected {expected}"
    )


def _check_may_take(self, name, kind, value):
    """Raises unless `value` may take the place of member `name`, which is of `kind`."""
    what = "parameter" if kind is Parameter else "module"
    if value is None and not self._is_free_to_change:
        expected = "one of a module written in Python; a built-in one keeps its members"
        _refuse(self, name, what, value, expected)
    if value is not None and not isinstance(value, (Parameter, Module)):
        _refuse(self, name, what, value, f"a {kind.__name__} or None")
    is_parameter = kind is Parameter and isinstance(value, Parameter)
    is_child = isinstance(self, Sequential) and isinstance(value, Module)
    if not (self._is_free_to_change or is_parameter or is_child):
        _refuse(self, name, what, value, "a member of a module written in Python")


def _check_not_above(self, name, module):
    if any(below is self for below in module.modules()):
        raise ValueError(
            f"module: child {name!r} of the {type(self).__name__} is a "
            f"{type(module).__name__} that "
            "contains it, expected one that does not; keep a reference to it in a list"
        )


def _warn_of_hidden(self, name, value):
    """Modules in a list, tuple or dict are not the module's own, unless it is below them."""
    hidden = [
        item
        for item in (value.values() if isinstance(value, dict) else value)
        if isinstance(item, Parameter)
        or (isinstance(item, Module) and all(below is not self for below in item.modules()))
    ]
    if hidden:
        kind = "a parameter" if isinstance(hidden[0], Parameter) else "a module"
        warnings.warn(
            f"module: {name!r} of the {type(self).__name__} is a {type(value).__name__} that holds "
            f"{kind}, which is neither trained, saved nor sharded with it; use nn.ModuleList, "
            "nn.ModuleDict or a separate attribute",
            stacklevel=4,
        )


def set_attribute(self, name, value):
    """Parameters and modules become the module's own, in the place of what was; None and the rest
    are plain attributes."""
    member = self._member(name)
    kind = _kind_of(member)
    if kind is Parameter and member is value:
        return  # as after self.weight -= ...
    if kind is not None:
        _check_may_take(self, name, kind, value)
    if isinstance(value, (Parameter, Module)):
        if isinstance(value, Module):
            _check_not_above(self, name, value)
        self._put(name, value)
        # A child is found faster as an attribute; what else is one would hide the member.
        self.__dict__.pop(name, None)
        if isinstance(value, Module) and self._is_made_in_python:
            object.__setattr__(self, name, value)
        return
    if not self._is_made_in_python:
        raise AttributeError(
            f"module: the {type(self).__name__} is part of a built-in module, expected one made in "
            f"Python, for attribute {name!r}"
        )
    if member is not None:
        if kind is None and isinstance(value, Tensor):
            self._set_buffer(name, value)
            return
        if kind is None and value is not None:
            _refuse(self, name, "buffer", value, "a Tensor or None")
        self._remove(name)
    if type(value) in (list, tuple, dict):
        _warn_of_hidden(self, name, value)
    object.__setattr__(self, name, value)


def register_buffer(self, name, tensor, persistent=True):
    """Adds a tensor that is not trained, as an attribute: it moves with the module and, if
    `persistent`, is in its state_dict. `fully_shard` and `parallelize` replicate it over the mesh.
    None reserves the name only."""
    if tensor is None:
        object.__setattr__(self, name, None)
        return
    if not isinstance(tensor, Tensor):
        kind = type(tensor).__name__
        raise TypeError(f"register_buffer: {name!r} is a {kind}, expected a Tensor or None")
    if name in self.__dict__ and self.__dict__[name] is None:
        del self.__dict__[name]
    elif hasattr(self, name):
        raise ValueError(
            f"register_buffer: name is {name!r}, expected one that is new in the "
            f"{type(self).__name__}"
        )
    self._register_buffer(name, tensor, persistent)


def delete_attribute(self, name):
    """Own members too."""
    member = self._member(name)
    if member is None:
        return object.__delattr__(self, name)
    if kind := _kind_of(member):
        _check_may_take(self, name, kind, None)
    self._remove(name)
    self.__dict__.pop(name, None)


def get_attribute(self, name):
    """Own parameters, children and buffers, which are no attributes; None for a weight or bias that
    a layer was made without."""
    if not name.startswith("__"):
        member = self._member(name)
        if member is not None:
            return member
    if name in ("weight", "bias") and isinstance(self, (Linear, LayerNorm)):
        return None
    raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


# The arguments of the constructor of a built-in class.
_OF_LINEAR = ("in_features", "out_features", "bias")
_OPTIONS = {
    _weft.Dropout: ("p",),
    _weft.Embedding: ("num_embeddings", "embedding_dim", "padding_idx"),
    LayerNorm: ("normalized_shape", "eps", "elementwise_affine", "bias"),
    _weft.Float8Linear: _OF_LINEAR,
    Linear: _OF_LINEAR,
    _weft.LatentAttention: ("config",),
    _weft.MoE: ("config",),
    _weft.TransformerModel: ("config",),
    _weft.RMSNorm: ("normalized_shape", "eps"),
    Sequential: (),
    Module: (),
}
# These keep the arguments themselves.
_IMAGE_LAYERS = (_weft._Conv, _weft._ConvTranspose, _weft._BatchNorm, _weft._GroupNorm)
_OPTIONS |= dict.fromkeys(_IMAGE_LAYERS, ())


def _option(module, name):
    # Parameters that a layer may be made without.
    optional = {"bias": "bias", "elementwise_affine": "weight"}.get(name)
    if optional is not None:
        return isinstance(module._member(optional), Parameter)
    return getattr(module, name)


def _built_in_class(module):
    """The class that the package binds and that `module` is made of: the first in order."""
    return next(
        kind
        for kind in type(module).__mro__
        if kind.__module__ == Module.__module__ and issubclass(kind, Module)
    )


def _copy_members(made, module, memo):
    """Puts copies of the members of `module` into `made`, which is new and of the same class."""
    for names, parameter in module._named_parameters():
        for name in names:
            if "." not in name and made._member(name) is None:
                made._put(name, copy.deepcopy(parameter, memo))
    for name, child in module.named_children():
        if made._member(name) is None:
            copied = copy.deepcopy(child, memo)
            made.adopt(name, copied)
            if name in module.__dict__:
                object.__setattr__(made, name, copied)
    for path, below in module.named_modules():
        target = made.get_submodule(path)
        if isinstance(below, Linear):
            object.__setattr__(target, "float8", below.float8)
        for name, tensor, persistent in below._own_buffers:
            copied = copy.deepcopy(tensor, memo)
            if target._member(name) is not None:
                target._set_buffer(name, copied)
            else:
                target._register_buffer(name, copied, persistent)
        for names, parameter in below._named_parameters():
            for name in names:
                if "." not in name:
                    target.set_parameter(name, copy.deepcopy(parameter, memo))


def deepcopy(self, memo):
    """A module of the same class with copies of all that it has: parameters (without their
    gradients, as in PyTorch), buffers, children, hooks and attributes. Ties stay ties. ValueError
    for a sharded module, and for one of a built-in class that is not in _OPTIONS."""
    for path, module in self.named_modules():
        if module._is_sharded:
            raise ValueError(
                f"deepcopy: module {path or type(self).__name__!r} is sharded, expected one before "
                "fully_shard and parallelize; make another one and load_state_dict() into it"
            )
    built_in = _built_in_class(self)
    if built_in is Module and not self._is_made_in_python:
        raise ValueError("deepcopy: the module is a part of a built-in one, expected all of that")
    if built_in not in _OPTIONS:
        raise ValueError(
            f"deepcopy: class of the module is {built_in.__name__}, whose sizes are not kept, "
            f"expected one of {', '.join(sorted(kind.__name__.strip('_') for kind in _OPTIONS))}; "
            "make another one and load_state_dict() into it"
        )
    made = type(self).__new__(type(self))
    given = self.__dict__["_made_of"] if built_in in _IMAGE_LAYERS else ()
    built_in.__init__(made, *given, **{name: _option(self, name) for name in _OPTIONS[built_in]})
    memo[id(self)] = made
    _copy_members(made, self, memo)
    for name, value in self.__dict__.items():
        if name == "_hooks":
            for before, after, of_module in copy.deepcopy(value, memo).values():
                made._add_hooks(before, after, of_module)
        elif name not in made.__dict__:
            object.__setattr__(made, name, copy.deepcopy(value, memo))
    if not self.training:
        made.eval()
    return made
