# SPDX-License-Identifier: Apache-2.0
"""The names under which PyTorch's users look for things."""

import functools

from weft import _array_api, _weft
from weft._array_api._beside import copied
from weft._weft import (
    DType as dtype,
    PrepareInput,
    PrepareOutput,
    Tensor as DTensor,
    divide as div,
    matmul as bmm,
    matmul as mm,
    multiply as mul,
    negative as neg,
    permute_dims as permute,
    subtract as sub,
)

__all__ = [
    "ColwiseParallel",
    "DTensor",
    "MixedPrecisionPolicy",
    "PrepareModuleInput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "bmm",
    "distribute_tensor",
    "dtype",
    "div",
    "empty",
    "init_device_mesh",
    "mm",
    "mul",
    "neg",
    "ones",
    "parallelize_module",
    "permute",
    "rand",
    "randn",
    "sub",
    "tensor",
    "zeros",
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


def distribute_tensor(tensor, device_mesh, placements=None):
    """distribute: each rank slices what it holds whole; no rank's values are sent to others."""
    return _weft.distribute(tensor, device_mesh, placements or {})


def parallelize_module(module, device_mesh, parallelize_plan):
    """parallelize."""
    return _weft.parallelize(module, device_mesh, parallelize_plan)


class MixedPrecisionPolicy(_weft.MixedPrecision):
    """MixedPrecision: parameters are gathered and computed with in param_dtype."""

    def __init__(
        self, param_dtype=None, reduce_dtype=None, output_dtype=None, cast_forward_inputs=True
    ):
        super().__init__(
            compute=param_dtype,
            reduce=reduce_dtype,
            outputs=output_dtype,
            inputs=param_dtype if cast_forward_inputs else None,
        )


def tensor(values, *, dtype=None, requires_grad=False):
    """A new tensor of nested lists, numbers, a NumPy array or whatever it takes; always a copy.
    Python floats become float32."""
    from weft._array_api import asarray

    made = asarray(values, dtype=dtype, copy=True)
    return made.requires_grad_() if requires_grad else made


def _of_sizes(make):
    """The factory, which takes sizes one by one too: randn(4, 8)."""

    @functools.wraps(make)
    def factory(*sizes, device_mesh=None, requires_grad=False, **options):
        if sizes:
            one_by_one = len(sizes) > 1 or hasattr(sizes[0], "__index__")
            options["shape"] = sizes if one_by_one else sizes[0]
        elif "size" in options:
            options["shape"] = options.pop("size")
        elif "shape" not in options:
            options["shape"] = ()
        if device_mesh is not None:
            options["mesh"] = device_mesh
        made = make(**options)
        return made.requires_grad_() if requires_grad else made

    return factory


empty = _of_sizes(_array_api.empty)
ones = _of_sizes(_array_api.ones)
rand = _of_sizes(_weft.rand)
randn = _of_sizes(_weft.randn)
zeros = _of_sizes(_array_api.zeros)


class ColwiseParallel(_weft.Colwise):
    """Colwise. Inputs say themselves how they are laid out, and what comes out is no local part:
    `input_layouts` and `use_local_output` have nothing to decide."""

    def __init__(self, *, input_layouts=None, output_layouts=None, use_local_output=True):
        super().__init__(output_layouts=output_layouts)


class RowwiseParallel(_weft.Rowwise):
    """Rowwise; see ColwiseParallel."""

    def __init__(self, *, input_layouts=None, output_layouts=None, use_local_output=True):
        super().__init__(output_layouts=output_layouts or _weft.Replicate())


def _as_list(layouts):
    return list(layouts) if isinstance(layouts, (tuple, list)) else [layouts]


def PrepareModuleInput(*, input_layouts=None, desired_input_layouts, use_local_output=False):
    """PrepareInput(desired_input_layouts); inputs say themselves how they are laid out."""
    return PrepareInput(_as_list(desired_input_layouts))


def PrepareModuleOutput(*, output_layouts=None, desired_output_layouts, use_local_output=False):
    """PrepareOutput(desired_output_layouts); outputs say themselves how they are laid out."""
    return PrepareOutput(_as_list(desired_output_layouts))


def _flatten(self, start_dim=0, end_dim=-1):
    """Dims start_dim to end_dim as one."""
    dims = max(1, self.ndim)
    first, last = (dim + dims if dim < 0 else dim for dim in (start_dim, end_dim))
    if not 0 <= first <= last < dims:
        raise ValueError(
            f"flatten: dims {start_dim} to {end_dim} are none of a tensor {list(self.shape)}"
        )
    shape = self.shape
    count = 1
    for size in shape[first : last + 1]:
        count *= size
    return self.reshape(*shape[:first], count, *shape[last + 1 :])


def _is_here(self):
    """The tensor itself."""
    return self


def _clone(self):
    """The same elements in new memory, laid out as here."""
    return copied(self)


for _name, _method in {
    "clone": _clone,
    "contiguous": _is_here,
    "flatten": _flatten,
}.items():
    setattr(_weft.Tensor, _name, _method)
