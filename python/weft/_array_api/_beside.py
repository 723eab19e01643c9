# SPDX-License-Identifier: Apache-2.0
"""Tensors that match another one, and copies of it."""

import math

import numpy as np

from weft import _weft


def normalized_axis(what, axis, ndim):
    """Returns `axis` counted from the front; ValueError when the tensor has no such dim."""
    if not -ndim <= axis < ndim:
        raise ValueError(f"{what}: axis {axis} is not one of the {ndim} dims")
    return axis % ndim


def normalized_axes(what, axes, ndim):
    """Returns one axis, several, or all (None), counted from the front."""
    if axes is None:
        return tuple(range(ndim))
    given = (axes,) if not isinstance(axes, (tuple, list)) else axes
    return tuple(normalized_axis(what, axis, ndim) for axis in given)


def elements_over(x, axes):
    """The number of elements that a reduction of x over `axes` combines."""
    return math.prod(x.shape[axis] for axis in axes)


def tensor_of(x):
    """The tensor itself, or the one that a Parameter computes with."""
    return x if isinstance(x, _weft.Tensor) else _weft.Tensor(x)


def filled_beside(x, shape, value, dtype):
    """A tensor of `shape` with equal elements, on the device of x, or Replicate over its mesh."""
    x = tensor_of(x)
    return _weft._full(shape, value, dtype=dtype, device=x.device, mesh=x.device_mesh)


def values_of(x):
    """The elements of the full tensor as a NumPy array; bfloat16 as float32."""
    whole = tensor_of(x).detach()
    if whole.is_sharded:
        whole = whole.full_tensor()
    if whole.dtype is _weft.bfloat16:
        whole = whole.to(_weft.float32)
    return np.array(whole, copy=True)


def values_beside(x, values, dtype=_weft.int64):
    """A NumPy array as a tensor on the device of x, or Replicate over its mesh."""
    made = _weft.from_numpy(np.array(values, order="C", ndmin=0))
    if made.dtype is not dtype:
        made = made.to(dtype)
    mesh = tensor_of(x).device_mesh
    return _weft.distribute(made, mesh) if mesh else made


def copied(x):
    """The same elements in new memory, with the layout of x."""
    if x.dtype.is_floating_point:
        return _weft.multiply(x, 1)
    made = _weft.zeros_like(x)
    _weft.copy_(made, x)
    return made


def on_device(x, device):
    """The same values on `device`; x itself when it is already there."""
    return x if x.device == device else _weft.on_device(x, device)


def check_device(what, x, device):
    """ValueError when `device` is not the device of x."""
    if device is not None and tensor_of(x).device != device:
        raise ValueError(f"{what}: a tensor on {tensor_of(x).device} has no way to device {device}")
