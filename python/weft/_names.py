# SPDX-License-Identifier: Apache-2.0
"""The names under which PyTorch's users look for things."""

import math as _math

from weft import _weft
from weft._arguments import described as _described, on_device as _on_device, renamed as _renamed
from weft._context import no_grad as inference_mode

DTensor = _weft.Tensor
device = _weft.Device
dtype = _weft.DType
bmm = mm = _weft.matmul
div = _weft.divide
double = _weft.float64
half = _weft.float16
long = _weft.int64
mul = _weft.multiply
neg = _weft.negative
permute = _weft.permute_dims
sub = _weft.subtract


def init_device_mesh(device_type, mesh_shape, *, mesh_dim_names=None, world=None):
    """A DeviceMesh over `world`, or over the job that this process is a rank of. `device_type` is
    "cpu" or "cuda": where new tensors over the mesh are made unless `device` is given."""
    from weft._context import connect

    names = mesh_dim_names or [f"dim{i}" for i in range(len(mesh_shape))]
    if len(names) != len(mesh_shape):
        raise ValueError(
            f"init_device_mesh: number of names is {len(names)}, expected {len(mesh_shape)}, the "
            "axes"
        )
    axes = list(zip(names, mesh_shape))
    return _weft.DeviceMesh(connect() if world is None else world, axes, device_type=device_type)


def distribute_tensor(tensor, device_mesh, placements=None, *, src_data_rank=None):
    """distribute: each rank slices what it holds whole; no rank's values are sent to others, unless
    src_data_rank says whose: that is scatter, to which the other ranks give None, or any."""
    if src_data_rank is not None:
        return _weft.scatter(tensor, device_mesh, placements or {}, root=src_data_rank)
    return _weft.distribute(tensor, device_mesh, placements or {})


def _from_local(
    local_tensor, device_mesh, placements, *, run_check=False, shape=None, stride=None
):
    """from_local: a sharded tensor whose parts are `local_tensor`. The ranks exchange their sizes
    unless the whole's `shape` is given."""
    if run_check:
        raise ValueError(
            "from_local: run_check is True, expected False; scatter sends one rank's "
            "values to others"
        )
    return _weft.from_local(local_tensor, device_mesh, placements, shape=shape)


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
    """A new tensor of nested lists, numbers, a NumPy array or whatever it takes; always a copy,
    and not recorded. Python floats become float32."""
    from weft._array_api import asarray

    made = asarray(values, dtype=dtype, copy=True).detach()
    return made.requires_grad_() if requires_grad else made


def randint(low, high, size=None, *, dtype=_weft.int64, requires_grad=False, **options):
    """Whole numbers in [low, high), or in [0, low) when two arguments are given, at most 2**32 of
    them; of the keywords of randn. Equal for any mesh."""
    if size is None:
        low, high, size = 0, low, high
    if not low < high:
        raise ValueError(
            f"randint: low and high are {_described(low)} and {_described(high)}, expected low "
            "below high"
        )
    if not all(_math.isfinite(x) and int(x) == x for x in (low, high)):
        raise ValueError(
            f"randint: low and high are {_described(low)} and {_described(high)}, expected whole "
            "numbers"
        )
    low, high, dtype = int(low), int(high), _weft.dtype_named(dtype)
    drawn = _weft._randint(
        size, low, high, dtype=_weft.int64 if dtype.is_floating_point else dtype, **options
    ).to(dtype)
    return drawn.requires_grad_() if requires_grad else drawn


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
    return _weft.PrepareInput(_as_list(desired_input_layouts))


def PrepareModuleOutput(*, output_layouts=None, desired_output_layouts, use_local_output=False):
    """PrepareOutput(desired_output_layouts); outputs say themselves how they are laid out."""
    return _weft.PrepareOutput(_as_list(desired_output_layouts))


def _contiguous(self):
    """The tensor itself if its elements are dense in row-major order; otherwise a copy that is."""
    made = _weft.contiguous(self)
    # Handles of one tensor have one hash.
    return self if hash(made) == hash(self) else made


def _cpu(self):
    """to("cpu")."""
    return _on_device(self, "cpu")


def _cuda(self, device=0):
    """to("cuda:<device>")."""
    return _on_device(self, f"cuda:{device}" if isinstance(device, int) else device)


def _is_device(given):
    if isinstance(given, str):
        return given.partition(":")[0] in ("cpu", "cuda", "meta")
    return isinstance(given, _weft.Device)


def _to(
    self, *given, dtype=None, device=None, copy=False, non_blocking=False, memory_format=None
):
    """The same values as another dtype or on another device: to(dtype), to("cuda"),
    to("cpu", dtype), to(other), which is as the other tensor; behind these non_blocking and copy.
    ValueError for a device that is not there."""
    flags = [one for one in given if one is True or one is False]
    copy = copy or flags[1:] == [True]
    for one in given:
        if one is True or one is False or one is None:
            continue
        if _is_device(one):
            device = one
        elif isinstance(one, _weft.Tensor):
            device, dtype = one.device, one.dtype
        else:
            dtype = one
    made = self if device is None else _on_device(self, device)
    made = made if dtype is None else _weft.astype(made, dtype, copy=False)
    same = made.dtype is self.dtype and made.device == self.device
    return _weft.clone(made) if copy and same else made


def _as_dtype(name, dtype):
    def method(self, memory_format=None):
        return _weft.astype(self, dtype, copy=False)

    method.__doc__ = f"to(weft.{dtype.name})."
    return _renamed(method, f"Tensor.{name}")


for _name, _method in {
    "clip_": _weft.Tensor.clamp_,
    "contiguous": _contiguous,
    "cpu": _cpu,
    "cuda": _cuda,
    "from_local": staticmethod(_from_local),
    "to": _to,
}.items():
    setattr(_weft.Tensor, _name, _method)
for _name, _dtype in {
    "bfloat16": _weft.bfloat16,
    "bool": _weft.bool,
    "byte": _weft.uint8,
    "char": _weft.int8,
    "double": _weft.float64,
    "float": _weft.float32,
    "half": _weft.float16,
    "int": _weft.int32,
    "long": _weft.int64,
    "short": _weft.int16,
}.items():
    setattr(_weft.Tensor, _name, _as_dtype(_name, _dtype))
