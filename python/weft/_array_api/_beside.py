# SPDX-License-Identifier: Apache-2.0
"""Tensors that match another one, and copies of it."""

from weft import _weft
from weft._words import described


def tensor_of(x):
    """The tensor itself, or the one that a Parameter computes with."""
    return x if isinstance(x, _weft.Tensor) else _weft.Tensor(x)


def on_device(x, device):
    """The same values on `device`; x itself when it is already there."""
    return x if x.device == device else _weft.on_device(x, device)


def check_device(what, x, device):
    """ValueError when `device` is not the device of x."""
    if device is not None and tensor_of(x).device != device:
        shown = device if isinstance(device, (str, _weft.Device)) else described(device)
        raise ValueError(
            f"{what}: device is {shown}, expected {tensor_of(x).device}, that of the tensor"
        )
