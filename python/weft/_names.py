# SPDX-License-Identifier: Apache-2.0
"""The names under which PyTorch's users look for things."""

from weft import _weft
from weft._weft import (
    DType as dtype,
    Colwise as ColwiseParallel,
    MixedPrecision as MixedPrecisionPolicy,
    Rowwise as RowwiseParallel,
    Tensor as DTensor,
    distribute as distribute_tensor,
    divide as div,
    multiply as mul,
    negative as neg,
    parallelize as parallelize_module,
    permute_dims as permute,
    subtract as sub,
)

__all__ = [
    "ColwiseParallel",
    "DTensor",
    "MixedPrecisionPolicy",
    "RowwiseParallel",
    "distribute_tensor",
    "dtype",
    "div",
    "init_device_mesh",
    "mul",
    "neg",
    "parallelize_module",
    "permute",
    "sub",
    "tensor",
]


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, world=None):
    """A DeviceMesh over `world`, or over the job that this process is a rank of. `device_type` is
    "cpu"."""
    from weft._context import connect

    if str(device_type) != "cpu":
        raise ValueError(f"init_device_mesh: there is no device type {device_type!r}, only 'cpu'")
    names = mesh_dim_names or [f"dim{i}" for i in range(len(mesh_shape))]
    if len(names) != len(mesh_shape):
        raise ValueError(f"init_device_mesh: {len(names)} names for {len(mesh_shape)} axes")
    return _weft.DeviceMesh(world or connect(), list(zip(names, mesh_shape)))


def tensor(values, *, dtype=None, requires_grad=False):
    """A new tensor of nested lists, numbers, a NumPy array or whatever it takes; always a copy.
    Python floats become float32."""
    from weft._array_api import asarray

    made = asarray(values, dtype=dtype, copy=True)
    return made.requires_grad_() if requires_grad else made
