# SPDX-License-Identifier: Apache-2.0
"""Factories with PyTorch's arguments."""

import weft as _package
from weft import _weft
from weft.torch._wrappers import LISTS as _LISTS
from weft.torch._wrappers import without_gradient_option as _without_gradient_option
from weft.torch._wrappers import like as _alike


def broadcast_shapes(*shapes):
    """The shape that all broadcast to."""
    shapes = [(s,) if isinstance(s, type(1)) else tuple(s) for s in shapes]
    tensors = [_package.empty(shape, device="meta") for shape in shapes]
    return tuple(_weft.broadcast_arrays(*tensors)[0].shape) if shapes else ()


def _new(make):
    def new(input, size, *values, dtype=None, device=None, **ignored):
        size = size if isinstance(size, _LISTS) else (size, *values)
        values = values if isinstance(size, _LISTS) and make is _package.full else ()
        made = make(tuple(size), *values, dtype=dtype or input.dtype, device=device or input.device)
        return made

    return new


new_zeros = _new(_package.zeros)
new_ones = _new(_package.ones)
new_full = _new(_package.full)


def _arange(start, end=None, step=1, **options):
    return _package.arange(start, end, step, **options)


def _linspace(start, end, steps, **options):
    start, end = (x.item() if isinstance(x, _weft.Tensor) else x for x in (start, end))
    return _package.linspace(start, end, steps, **options)


def _logspace(start, end, steps, base=10.0, *, dtype=None, **options):
    powers = _weft.pow(base * 1.0, _linspace(start, end, steps, **options))
    return powers if dtype is None else _weft.astype(powers, dtype)


arange = _without_gradient_option(_arange)
eye = _without_gradient_option(_package.eye)
full = _without_gradient_option(_package.full)
linspace = _without_gradient_option(_linspace)
logspace = _without_gradient_option(_logspace)
zeros_like = _without_gradient_option(_alike(_package.zeros_like))
ones_like = _without_gradient_option(_alike(_package.ones_like))
full_like = _without_gradient_option(_alike(_package.full_like))


def scalar_tensor(value, *, dtype=None, device=None, **ignored):
    """A tensor without dims; float32 unless a dtype is given."""
    return _package.asarray(value, dtype=dtype or _weft.float32, device=device)


def as_tensor(data, *, dtype=None, device=None):
    """A tensor as it is, where dtype and device are its own; else a new one."""
    if not isinstance(data, _weft.Tensor):
        return _package.tensor(data, dtype=dtype, **({} if device is None else {"device": device}))
    made = data if dtype is None else _weft.astype(data, dtype, copy=False)
    return made if device is None else made.to(device)
