# SPDX-License-Identifier: Apache-2.0
"""The methods that `fully_shard` gives a module, by the names of PyTorch's FSDPModule."""

import functools
import weakref

from weft import _weft
from weft._weft import Module


class _IsSharded(type(_weft.FSDPModule)):
    def __instancecheck__(cls, module):
        return isinstance(module, Module) and _weft._is_fully_sharded(module)


def _refuse(what, given, reason):
    raise ValueError(f"{what}: {given}, expected no call; {reason}")


_SENT_FROM = "gradients are written where they are sent from"
_WITHOUT_STAGING = "collectives read and write parameters and gradients in place, without staging"


class FSDPModule(_weft.FSDPModule, metaclass=_IsSharded):
    """A module that was given to `fully_shard`: `isinstance(module, FSDPModule)`. All modules have
    these methods; on one that is not sharded they raise ValueError. With `recurse` they hold for
    the modules below too."""

    # The methods of PyTorch's that have nothing to do here.

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers, *, recurse=True):
        """ValueError: backward writes into the buffers that are sent, and takes a new one where the
        last is still being sent."""
        reason = _SENT_FROM + ", and predicted_bytes reports the buffers"
        _refuse("set_reduce_scatter_max_input_buffers", f"value is {max_input_buffers}", reason)

    def set_separate_reduce_scatter_group(self, enable=True, *, recurse=True):
        """ValueError: gathers and reductions run on two streams."""
        _refuse(
            "set_separate_reduce_scatter_group",
            f"value is {enable}",
            "gathers and reductions run on two streams over the communicators of the mesh's axes",
        )

    def set_allocate_memory_from_process_group_for_comm(self, enable):
        """ValueError: there are no staging buffers."""
        name = "set_allocate_memory_from_process_group_for_comm"
        _refuse(name, f"value is {enable}", _WITHOUT_STAGING)

    def set_symm_mem_for_comm(self, backend="NCCL"):
        """ValueError: there are no staging buffers."""
        _refuse("set_symm_mem_for_comm", f"backend is {backend!r}", _WITHOUT_STAGING)

    def set_all_gather_layout(self, layout):
        """ValueError: there is no copy out of a gather."""
        reason = "gathers write parameters in place"
        _refuse("set_all_gather_layout", f"layout is {layout!r}", reason)

    def set_reduce_scatter_input_fn(self, function):
        """ValueError: there is no copy into a reduction."""
        _refuse("set_reduce_scatter_input_fn", f"function is {function!r}", _SENT_FROM)

    def get_pending_gradients(self, *, recurse=True):
        """ValueError: `grad` shows a sum that was not reduced as Partial."""
        reason = "grad shows a sum that was not reduced yet, as Partial"
        _refuse("get_pending_gradients", f"recurse is {recurse}", reason)

    def synchronize_gradients(self, *, recurse=True):
        """ValueError: the last backward reduces what earlier ones kept."""
        _refuse(
            "synchronize_gradients",
            f"recurse is {recurse}",
            "the backward after set_requires_gradient_sync(True) reduces what earlier ones kept",
        )


for _name, _method in [*vars(_weft.FSDPModule).items(), *vars(FSDPModule).items()]:
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
