# SPDX-License-Identifier: Apache-2.0
"""The methods that `fully_shard` gives a module, by the names of PyTorch's FSDPModule."""

import functools
import weakref

from weft import _weft
from weft._weft import Module


class _IsSharded(type(_weft.FSDPModule)):
    def __instancecheck__(cls, module):
        return isinstance(module, Module) and _weft._is_fully_sharded(module)


class FSDPModule(_weft.FSDPModule, metaclass=_IsSharded):
    """A module that was given to `fully_shard`: `isinstance(module, FSDPModule)`. All modules have
    these methods; on one that is not sharded they raise ValueError. With `recurse` they hold for
    the modules below too."""


for _name, _method in vars(_weft.FSDPModule).items():
    if not _name.startswith("_"):
        setattr(Module, _name, _method)


def register_fsdp_forward_method(module, method_name):
    """Makes calls of the method unshard and reshard as those of forward do. Does nothing for a
    module that is not sharded."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(
            f"register_fsdp_forward_method: method {method_name!r} does not exist in the "
            f"{type(module).__name__}, expected one that does"
        )
    function = getattr(type(module), method_name)
    held = weakref.ref(module)

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        own = held()
        return _weft._call_as_forward(own, functools.partial(function, own), *args, **kwargs)

    object.__setattr__(module, method_name, wrapped)
