# SPDX-License-Identifier: Apache-2.0
"""Compares weft's results with NumPy's."""

import numpy as np

import weft

# max|d| / max|ref| of results of these dtypes. Half precision: a few roundings of 2^-11 and 2^-8.
BOUNDS = {"float32": 1e-5, "float64": 1e-12, "float16": 4e-3, "bfloat16": 2e-2}


def to_weft(array, dtype=None):
    """The array as a tensor, of bfloat16 when `dtype` is that and the array holds its values."""
    tensor = weft.asarray(array, copy=True)
    is_half = dtype == "bfloat16" and tensor.dtype is weft.float32
    return tensor.to(weft.bfloat16) if is_half else tensor


def to_numpy(tensor):
    whole = (tensor.full_tensor() if tensor.is_sharded else tensor).detach()
    return np.asarray(whole.to(weft.float32) if whole.dtype is weft.bfloat16 else whole).copy()


def flat(result):
    return [*result] if isinstance(result, (list, tuple)) else [result]


def expected_dtype(array, dtype):
    """The dtype in weft for a NumPy result: float32 where NumPy makes another floating dtype of
    integers."""
    name = array.dtype.name
    if name == "float16" and "int" in dtype:
        return "float32"
    if name == "float64" and dtype not in ("float64", "asked"):
        return "float32"
    if name == "float32" and dtype == "bfloat16":
        return "bfloat16"
    return name


def difference(ours, theirs, bound):
    """None if both agree, otherwise a description of the difference."""
    theirs = np.asarray(theirs)
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, NumPy {theirs.shape}"
    if theirs.dtype.kind != "f":
        wrong = ours.astype(theirs.dtype) != theirs
        return (
            f"{wrong.sum()} of {wrong.size} differ: {ours}, NumPy {theirs}" if wrong.any() else None
        )
    ours, theirs = ours.astype("float64"), theirs.astype("float64")
    finite = np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return f"{ours[~finite]} where NumPy has {theirs[~finite]}"
    if not finite.any():
        return None
    scale = max(np.abs(theirs[finite]).max(), np.finfo("float32").tiny)
    error = np.abs(ours[finite] - theirs[finite]).max() / scale
    return None if error <= bound else f"error {error:.2e} of at most {bound:.0e}"


def check_dtypes(ours, theirs, dtype):
    """Checks the dtypes of results on operands of `dtype`; "asked" when the call names the
    dtype."""
    for i, (tensor, array) in enumerate(zip(flat(ours), flat(theirs))):
        expected = expected_dtype(np.asarray(array), dtype)
        assert tensor.dtype.name == expected, f"result {i} is {tensor.dtype.name}, not {expected}"


def check(ours, theirs, dtype=None):
    """Raises AssertionError unless all results agree, and also their dtypes if `dtype` is given."""
    ours, theirs = flat(ours), flat(theirs)
    assert len(ours) == len(theirs), f"{len(ours)} results, NumPy {len(theirs)}"
    for i, (tensor, array) in enumerate(zip(ours, theirs)):
        wrong = difference(to_numpy(tensor), np.asarray(array), BOUNDS.get(tensor.dtype.name, 0))
        assert wrong is None, f"result {i}: {wrong}"
    if dtype:
        check_dtypes(ours, theirs, dtype)
