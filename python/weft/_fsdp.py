# SPDX-License-Identifier: Apache-2.0
"""The methods that `fully_shard` gives a module, by the names of PyTorch's FSDPModule."""

import functools
import weakref

from weft import _weft
from weft._weft import Module


class _IsSharded(type):
    def __instancecheck__(cls, module):
        return isinstance(module, Module) and _weft._FsdpModule.is_sharded(module)


_SENT_FROM = "gradients are written where they are sent from"
_WITHOUT_STAGING = "collectives read and write parameters and gradients in place, without staging"
# Why the methods are not called.
_REASONS = {
    "set_reduce_scatter_max_input_buffers": _SENT_FROM
    + ", and predicted_bytes reports the buffers",
    "set_separate_reduce_scatter_group": "gathers and reductions run on two streams over the "
    "communicators of the mesh's axes",
    "set_allocate_memory_from_process_group_for_comm": _WITHOUT_STAGING,
    "set_symm_mem_for_comm": _WITHOUT_STAGING,
    "set_all_gather_layout": "gathers write parameters in place",
    "set_reduce_scatter_input_fn": _SENT_FROM,
    "get_pending_gradients": "grad shows a sum that was not reduced yet, as Partial",
    "synchronize_gradients": "the backward after set_requires_gradient_sync(True) reduces what "
    "earlier ones kept",
}


def _refuse(what, given):
    raise ValueError(f"{what}: {given}, expected no call; {_REASONS[what]}")


class FSDPModule(metaclass=_IsSharded):
    """A module that was given to `fully_shard`: `isinstance(module, FSDPModule)`. All modules have
    these methods; on one that is not sharded they raise ValueError. With `recurse` they hold for
    the modules below too."""

    def unshard(self, async_op=False):
        """Gathers the module's parameters, without those of modules below; the next forward finds
        them unsharded. `async_op` gives a handle, whose wait() returns when they are there."""
        handle = _weft._FsdpModule(self).unshard(async_op)
        return handle if async_op else None

    def reshard(self):
        """Frees the unsharded parameters, also those that the strategy keeps."""
        _weft._FsdpModule(self).reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync, *, recurse=True):
        """False: backwards reduce nothing, and add unsharded gradients."""
        _weft._FsdpModule(self).set_requires_gradient_sync(requires_gradient_sync, recurse)

    def set_requires_all_reduce(self, requires_all_reduce, *, recurse=True):
        """False: as in no_sync, the reductions of the last micro-step wait."""
        _weft._FsdpModule(self).set_requires_all_reduce(requires_all_reduce, recurse)

    def set_reshard_after_forward(self, reshard_after_forward, recurse=True):
        """Replaces the option of fully_shard, also for the outermost module and in evaluation."""
        if not isinstance(reshard_after_forward, bool):
            kind = type(reshard_after_forward).__name__
            raise ValueError(
                f"set_reshard_after_forward: value is of type {kind}, expected a bool; fully_shard "
                "takes an axis or a number of ranks"
            )
        _weft._FsdpModule(self).set_reshard_after_forward(reshard_after_forward, recurse)

    def set_reshard_after_backward(self, reshard_after_backward, *, recurse=True):
        """False: parameters stay unsharded after backward, until they change or reshard()."""
        _weft._FsdpModule(self).set_reshard_after_backward(reshard_after_backward, recurse)

    def set_modules_to_forward_prefetch(self, modules):
        """The modules to unshard early at this one's forward; [] for the recorded order."""
        _weft._FsdpModule(self).set_modules_to_forward_prefetch(modules)

    def set_modules_to_backward_prefetch(self, modules):
        """The modules to unshard early at this one's backward; [] for the recorded order."""
        _weft._FsdpModule(self).set_modules_to_backward_prefetch(modules)

    def set_all_reduce_hook(self, hook, *, stream=None):
        """hook(gradients) gets the reduced gradients of a step as a flat tensor, and may change it
        in place, before they are added to those of earlier steps. None removes it."""
        if stream is not None:
            raise ValueError(
                "set_all_reduce_hook: stream is given, expected None; the hook runs on the stream "
                "of the reductions"
            )
        _weft._FsdpModule(self).set_all_reduce_hook(hook)

    def set_gradient_divide_factor(self, factor):
        """The module's own gradients are divided by it after their reduction. 1 gives the gradients
        of the loss over the whole batch."""
        _weft._FsdpModule(self).set_gradient_divide_factor(factor)

    def set_reduce_scatter_divide_factor(self, factor):
        """set_gradient_divide_factor."""
        self.set_gradient_divide_factor(factor)

    def set_force_sum_reduction_for_comms(self, enable):
        """True holds always; ValueError for False."""
        _weft._FsdpModule(self).set_force_sum_reduction_for_comms(enable)

    def set_unshard_in_backward(self, unshard_in_backward):
        """False: backward does not unshard, and raises where it reads a parameter."""
        _weft._FsdpModule(self).set_unshard_in_backward(unshard_in_backward)

    def set_is_last_backward(self, is_last_backward):
        """False: the end of a backward leaves reductions under way, and gradients cannot be read
        until the last backward."""
        _weft._FsdpModule(self).set_is_last_backward(is_last_backward)

    def set_custom_all_gather(self, comm):
        """comm(output_tensor, input_tensor, group, counts) gathers in place of weft, once for each
        parameter: flat tensors, and how many elements each rank sends. None restores weft's."""
        _weft._FsdpModule(self).set_custom_all_gather(comm)

    def set_custom_reduce_scatter(self, comm):
        """comm(output_tensor, input_tensor, group, counts) reduces in place of weft, once for each
        gradient: flat tensors, and how many elements each rank gets. None restores weft's."""
        _weft._FsdpModule(self).set_custom_reduce_scatter(comm)

    def set_reduce_scatter_unused_params(self, reduce_scatter_unused_params, *, recurse=True):
        """True holds always; ValueError for False."""
        _weft._FsdpModule(self).set_reduce_scatter_unused_params(
            reduce_scatter_unused_params, recurse
        )

    def set_keep_unsharded_storage(self, keep, *, recurse=True):
        """True: resharding keeps the memory, at the same address, for the next unshard."""
        _weft._FsdpModule(self).set_keep_unsharded_storage(keep, recurse)

    def set_manual_backward_finalization(self, enabled):
        """Of the outermost module. True: no backward ends the step, finalize_backward() does."""
        _weft._FsdpModule(self).set_manual_backward_finalization(enabled)

    def finalize_backward(self, *, async_op=False):
        """Completes the reductions of the backwards before. `async_op` gives a handle; gradients
        cannot be read before its wait()."""
        handle = _weft._FsdpModule(self).finalize_backward(async_op)
        return handle if async_op else None

    def reset_iter_state(self):
        """Call it on the outermost module after an exception in forward or backward: ends what is
        under way, reshards, and clears all gradients."""
        _weft._FsdpModule(self).reset_iter_state()

    def set_post_optim_event(self, event):
        """The next unshard after an update waits for this Event in place of the current stream."""
        _weft._FsdpModule(self).set_post_optim_event(event)

    def set_reduce_scatter_max_input_buffers(self, max_input_buffers, *, recurse=True):
        """ValueError: backward writes into the buffers that are sent, and takes a new one where the
        last is still being sent."""
        _refuse("set_reduce_scatter_max_input_buffers", f"value is {max_input_buffers}")

    def set_separate_reduce_scatter_group(self, enable=True, *, recurse=True):
        """ValueError: gathers and reductions run on two streams."""
        _refuse("set_separate_reduce_scatter_group", f"value is {enable}")

    def set_allocate_memory_from_process_group_for_comm(self, enable):
        """ValueError: there are no staging buffers."""
        _refuse("set_allocate_memory_from_process_group_for_comm", f"value is {enable}")

    def set_symm_mem_for_comm(self, backend="NCCL"):
        """ValueError: there are no staging buffers."""
        _refuse("set_symm_mem_for_comm", f"backend is {backend!r}")

    def set_all_gather_layout(self, layout):
        """ValueError: there is no copy out of a gather."""
        _refuse("set_all_gather_layout", f"layout is {layout!r}")

    def set_reduce_scatter_input_fn(self, function):
        """ValueError: there is no copy into a reduction."""
        _refuse("set_reduce_scatter_input_fn", f"function is {function!r}")

    def get_pending_gradients(self, *, recurse=True):
        """ValueError: `grad` shows a sum that was not reduced as Partial."""
        _refuse("get_pending_gradients", f"recurse is {recurse}")

    def synchronize_gradients(self, *, recurse=True):
        """ValueError: the last backward reduces what earlier ones kept."""
        _refuse("synchronize_gradients", f"recurse is {recurse}")


for _name, _method in list(vars(FSDPModule).items()):
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
