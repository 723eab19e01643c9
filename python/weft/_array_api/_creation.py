# SPDX-License-Identifier: Apache-2.0
"""New tensors. `mesh` and `placements`, which the standard lacks, shard them at creation."""

import numbers
import sys

from weft import _weft
from weft._arguments import described, tensor_of
from weft._array_api._dtypes import check_fits

__all__ = ["asarray", "eye", "full", "full_like"]


def _is_of_numpy(value, *names):
    """Whether the value has one of these types of NumPy, which `import weft` does not load: half of
    its time."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, tuple(getattr(numpy, name) for name in names))


def _dtype_of_number(value):
    if isinstance(value, bool) or _is_of_numpy(value, "bool_"):
        return _weft.bool
    if isinstance(value, numbers.Integral):
        return _weft.int64
    return _weft.float32 if isinstance(value, numbers.Real) else _weft.complex64


def full(
    shape,
    fill_value,
    *,
    dtype=None,
    device=None,
    mesh=None,
    placements=None,
    requires_grad=False,
):
    """A tensor filled with the number `fill_value`, whose type determines the default dtype.
    ValueError for a number out of an integer dtype's range."""
    dtype = _dtype_of_number(fill_value) if dtype is None else _weft.dtype_named(dtype)
    check_fits("full", fill_value, dtype)
    return _weft._full(
        shape,
        float(fill_value) if dtype.is_floating_point else fill_value,
        dtype=dtype,
        device=device,
        mesh=mesh,
        placements=placements,
        requires_grad=requires_grad,
    )


def full_like(x, fill_value, *, dtype=None, device=None, requires_grad=False):
    """A tensor filled with `fill_value`, with the shape, layout and (by default) dtype of x.
    ValueError for a number out of an integer dtype's range."""
    made = _weft.zeros_like(x, dtype=dtype, device=device)
    check_fits("full_like", fill_value, made.dtype)
    is_partial = made.is_sharded and any(isinstance(p, _weft.Partial) for p in made.placements)
    if is_partial:
        whole = full((), fill_value, dtype=made.dtype, device=made.device, mesh=made.device_mesh)
        made = _weft.add(made, whole)
    else:
        _weft.fill_(made, fill_value)
    return made.requires_grad_() if requires_grad else made


def eye(n_rows, n_cols=None, *, k=0, dtype=None, device=None, **options):
    """A matrix [n_rows, n_cols] with ones where column - row is k, otherwise zeros; float32 by
    default. options: mesh, placements and requires_grad."""
    # A diagonal outside of the matrix may be beyond 64 bits.
    last = n_rows if n_cols is None else n_cols
    if isinstance(k, int) and all(isinstance(size, int) for size in (n_rows, last)):
        k = max(-max(n_rows, 0), min(k, max(last, 0)))
    return _weft.eye(n_rows, n_cols, k=k, dtype=dtype, device=device, **options)


# Dtypes that NumPy lacks.
_WIDENED = (_weft.bfloat16, _weft.float8_e4m3fn, _weft.float8_e5m2)


def _numpy_of(obj, dtype, copy):
    """Nested sequences and numbers as an array; Python floats become float32, and complex numbers
    complex64."""
    import numpy as np

    if copy is False:
        raise ValueError(
            f"asarray: copy is False for a {type(obj).__name__}, expected None or True"
        )
    try:
        array = np.asarray(obj)
        if dtype is not None:
            return np.asarray(obj, dtype="float32" if dtype in _WIDENED else dtype.name)
    except ValueError as raised:
        if "inhomogeneous" not in str(raised):
            raise
        raise ValueError("asarray: lengths of nested lists differ, expected equal ones") from None
    first = obj
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    has_dtype = hasattr(first, "dtype")
    if array.dtype == "complex128" and not has_dtype:
        return array.astype("complex64")
    return array.astype("float32") if array.dtype == "float64" and not has_dtype else array


def _shared(obj, dtype, copy):
    """`obj` as a tensor that shares its memory where possible."""
    import numpy as np

    is_numpy = isinstance(obj, (np.ndarray, np.generic))
    if not is_numpy and hasattr(obj, "__dlpack__"):
        return _weft.from_dlpack(obj, copy=copy)
    if not is_numpy and isinstance(obj, (bool, int, float, complex, list, tuple)):
        return _weft.from_numpy(_numpy_of(obj, dtype, copy))
    try:
        seen = obj if hasattr(obj, "__array__") else memoryview(obj)
    except TypeError:
        raise TypeError(
            f"asarray: it is a {type(obj).__name__}, expected numbers, lists of them or an array"
        ) from None
    return _weft.from_numpy(np.asarray(seen), copy=copy)


def asarray(obj, *, dtype=None, device=None, copy=None):
    """A tensor from nested lists and numbers (floats become float32), an object with __dlpack__,
    __array__ or a buffer, or a tensor. Memory is shared where possible unless `copy` is true; with
    copy=False a needed copy is a ValueError."""
    dtype = None if dtype is None else _weft.dtype_named(dtype)
    is_tensor = isinstance(obj, (_weft.Tensor, _weft.Parameter))
    made = tensor_of(obj) if is_tensor else _shared(obj, dtype, copy)
    if device is not None and made.device != device:
        shown = device if isinstance(device, (str, _weft.Device)) else described(device)
        raise ValueError(f"asarray: device is {shown}, expected {made.device}, that of the tensor")
    if dtype is None or made.dtype is dtype:
        return _weft.clone(made) if is_tensor and copy else made
    if copy is False:
        raise ValueError(
            f"asarray: dtype is {dtype.name}, expected {made.dtype.name} for copy=False"
        )
    return _weft.astype(made, dtype, copy=False)
