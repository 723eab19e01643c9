# SPDX-License-Identifier: Apache-2.0
"""Deep copies of modules."""

import copy

from weft import _weft
from weft._weft import Linear, Module, Parameter

# The arguments of the constructor of a built-in class.
_OF_LINEAR = ("in_features", "out_features", "bias")
_OPTIONS = {
    _weft.Dropout: ("p",),
    _weft.Embedding: ("num_embeddings", "embedding_dim"),
    _weft.LayerNorm: ("normalized_shape", "eps", "elementwise_affine", "bias"),
    _weft.Float8Linear: _OF_LINEAR,
    Linear: _OF_LINEAR,
    _weft.LatentAttention: ("config",),
    _weft.MoE: ("config",),
    _weft.TransformerModel: ("config",),
    _weft.RMSNorm: ("normalized_shape", "eps"),
    _weft.Sequential: (),
    Module: (),
}


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
                made._add_parameter(name, copy.deepcopy(parameter, memo))
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
            "expected one of " + ", ".join(sorted(kind.__name__ for kind in _OPTIONS)) + "; make "
            "another one and load_state_dict() into it"
        )
    made = type(self).__new__(type(self))
    built_in.__init__(made, **{name: _option(self, name) for name in _OPTIONS[built_in]})
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
