# SPDX-License-Identifier: Apache-2.0
"""Attributes of modules: parameters, modules and buffers among them are the module's own."""

import warnings

from weft._weft import LayerNorm, Linear, Module, Parameter, Sequential, Tensor


def _kind_of(member):
    """Parameter or Module when the member is one, else None."""
    return next((kind for kind in (Parameter, Module) if isinstance(member, kind)), None)


def _check_may_take(self, name, kind, value):
    """Raises unless `value` may take the place of member `name`, which is of `kind`."""
    what = "parameter" if kind is Parameter else "module"
    if value is None and not self._is_free_to_change:
        raise ValueError(
            f"module: {name!r} is a {what} of the {type(self).__name__}, expected one of a module "
            "written in Python; a built-in one keeps its members"
        )
    if value is not None and not isinstance(value, (Parameter, Module)):
        raise ValueError(
            f"module: {name!r} is a {what} of the {type(self).__name__} and gets a "
            f"{type(value).__name__}, expected a {kind.__name__} or None"
        )
    is_parameter = kind is Parameter and isinstance(value, Parameter)
    is_child = isinstance(self, Sequential) and isinstance(value, Module)
    if not (self._is_free_to_change or is_parameter or is_child):
        raise ValueError(
            f"module: {name!r} is a {what} of the {type(self).__name__} and gets a "
            f"{type(value).__name__}, expected a member of a module written in Python"
        )


def _check_not_above(self, name, module):
    if any(below is self for below in module.modules()):
        raise ValueError(
            f"module: child {name!r} of the {type(self).__name__} is a "
            f"{type(module).__name__} that "
            "contains it, expected one that does not; keep a reference to it in a list"
        )


def _modules_within(value):
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, (list, tuple)) or type(value).__name__ == "dict_values":
        return [item for item in value if isinstance(item, (Module, Parameter))]
    return []


def _warn_of_hidden(self, name, value):
    """Modules in a list are not the module's own, unless it is below them."""
    hidden = [
        item
        for item in _modules_within(value)
        if isinstance(item, Parameter) or all(below is not self for below in item.modules())
    ]
    if hidden:
        kind = "a parameter" if isinstance(hidden[0], Parameter) else "a module"
        warnings.warn(
            f"module: {name!r} of the {type(self).__name__} is a {type(value).__name__} that holds "
            f"{kind}, which is neither trained, saved nor sharded with it; use nn.ModuleList, "
            "nn.ModuleDict or a separate attribute",
            stacklevel=4,
        )


def _put_member(self, name, kind, value):
    """A parameter or module as member `name`, of which there is one of `kind`, or none."""
    is_parameter = isinstance(value, Parameter)
    if kind is not None and is_parameter == (kind is Parameter):
        if self._is_free_to_change or not is_parameter:
            self._replace(name, value)
        else:
            self.set_parameter(name, value)
        return
    if kind is not None:
        self._remove(name)
    if is_parameter:
        self._add_parameter(name, value)
    else:
        self.adopt(name, value)


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
        _put_member(self, name, kind, value)
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
    if kind is not None:
        self._remove(name)
    elif member is not None:
        if isinstance(value, Tensor):
            self._set_buffer(name, value)
            return
        if value is not None:
            raise ValueError(
                f"module: {name!r} is a buffer of the {type(self).__name__} and gets a "
                f"{type(value).__name__}, expected a Tensor or None"
            )
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
    kind = _kind_of(member)
    if member is None:
        object.__delattr__(self, name)
        return
    if kind is not None:
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
