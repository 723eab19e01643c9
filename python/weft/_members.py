# SPDX-License-Identifier: Apache-2.0
"""Attributes of modules: parameters and modules among them are the module's own."""

from weft._weft import Module, Parameter, Sequential


def _kind_of(self, name):
    """Parameter or Module when that is what the module's own member `name` is, else None."""
    if self._own_parameter(name) is not None:
        return Parameter
    return Module if self._child(name) is not None else None


def _check_may_take(self, name, kind, value):
    """Raises unless `value` may take the place of member `name`, which is of `kind`."""
    what = "parameter" if kind is Parameter else "module"
    if value is not None and not isinstance(value, (Parameter, Module)):
        raise ValueError(
            f"module: {name!r} is a {what} of the {type(self).__name__}: a "
            f"{type(value).__name__} cannot take its place, another {kind.__name__} or None can"
        )
    is_parameter = kind is Parameter and isinstance(value, Parameter)
    is_child = isinstance(self, Sequential) and isinstance(value, Module)
    if not (self._is_free_to_change or is_parameter or is_child):
        raise ValueError(
            f"module: {name!r} is a {what} of the {type(self).__name__}, whose forward is built "
            f"in, and stays: a {type(value).__name__} cannot take its place"
        )


def _check_not_above(self, name, module):
    if any(below is self for below in module.modules()):
        raise ValueError(
            f"module: the {type(self).__name__} is within the {type(module).__name__} that is "
            f"to be its child {name!r}; keep one that is above as a plain value, in a list"
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
    kind = _kind_of(self, name)
    if kind is Parameter and self._own_parameter(name) is value:
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
            f"module: a {type(self).__name__} that a built-in module made has no room for {name!r}"
        )
    if kind is not None:
        self._remove(name)
    object.__setattr__(self, name, value)


def delete_attribute(self, name):
    """Own members too."""
    kind = _kind_of(self, name)
    if kind is None:
        object.__delattr__(self, name)
        return
    _check_may_take(self, name, kind, None)
    self._remove(name)
    self.__dict__.pop(name, None)


def get_attribute(self, name):
    """Own parameters and children that are no attributes."""
    if not name.startswith("__"):
        parameter = self._own_parameter(name)
        if parameter is not None:
            return parameter
        child = self._child(name)
        if child is not None:
            return child
    raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
