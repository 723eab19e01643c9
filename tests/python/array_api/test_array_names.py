# SPDX-License-Identifier: Apache-2.0
"""Every name of the standard exists, or the documentation lists it as absent."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import weft

# The standard's names, version 2024.12, each with the arguments that can be passed by name.
FUNCTIONS = """
arange(stop, step, dtype, device) asarray(dtype, device, copy) empty(dtype, device)
empty_like(dtype, device) eye(k, dtype, device) from_dlpack(device, copy)
full(dtype, device) full_like(dtype, device) linspace(num, dtype, device, endpoint)
meshgrid(indexing) ones(dtype, device) ones_like(dtype, device) tril(k) triu(k)
zeros(dtype, device) zeros_like(dtype, device)
astype(copy, device) can_cast() finfo() iinfo() isdtype() result_type()
abs() acos() acosh() add() asin() asinh() atan() atan2() atanh() bitwise_and()
bitwise_left_shift() bitwise_invert() bitwise_or() bitwise_right_shift() bitwise_xor() ceil()
clip(min, max) conj() copysign() cos() cosh() divide() equal() exp() expm1() floor()
floor_divide() greater() greater_equal() hypot() imag() isfinite() isinf() isnan() less()
less_equal() log() log1p() log2() log10() logaddexp() logical_and() logical_not() logical_or()
logical_xor() maximum() minimum() multiply() negative() nextafter() not_equal() positive() pow()
real() reciprocal() remainder() round() sign() signbit() sin() sinh() square() sqrt() subtract()
tan() tanh() trunc()
take(axis) take_along_axis(axis)
matmul() matrix_transpose() tensordot(axes) vecdot(axis)
broadcast_arrays() broadcast_to() concat(axis) expand_dims(axis) flip(axis) moveaxis()
permute_dims() repeat(axis) reshape(copy) roll(axis) squeeze() stack(axis) tile() unstack(axis)
argmax(axis, keepdims) argmin(axis, keepdims) count_nonzero(axis, keepdims) nonzero()
searchsorted(side, sorter) where()
unique_all() unique_counts() unique_inverse() unique_values()
argsort(axis, descending, stable) sort(axis, descending, stable)
cumulative_prod(axis, dtype, include_initial) cumulative_sum(axis, dtype, include_initial)
max(axis, keepdims) mean(axis, keepdims) min(axis, keepdims) prod(axis, dtype, keepdims)
std(axis, correction, keepdims) sum(axis, dtype, keepdims) var(axis, correction, keepdims)
all(axis, keepdims) any(axis, keepdims) diff(axis, n, prepend, append)
__array_namespace_info__()
linalg.cholesky(upper) linalg.cross(axis) linalg.det() linalg.diagonal(offset) linalg.eigh()
linalg.eigvalsh() linalg.inv() linalg.matmul() linalg.matrix_norm(keepdims, ord)
linalg.matrix_power() linalg.matrix_rank(rtol) linalg.matrix_transpose() linalg.outer()
linalg.pinv(rtol) linalg.qr(mode) linalg.slogdet() linalg.solve() linalg.svd(full_matrices)
linalg.svdvals() linalg.tensordot(axes) linalg.trace(offset, dtype) linalg.vecdot(axis)
linalg.vector_norm(axis, keepdims, ord) real() imag() conj()
fft.fft(n, axis, norm) fft.ifft(n, axis, norm) fft.fftn(s, axes, norm) fft.ifftn(s, axes, norm)
fft.rfft(n, axis, norm) fft.irfft(n, axis, norm) fft.rfftn(s, axes, norm) fft.irfftn(s, axes, norm)
fft.hfft(n, axis, norm) fft.ihfft(n, axis, norm) fft.fftfreq(d, dtype, device)
fft.rfftfreq(d, dtype, device) fft.fftshift(axes) fft.ifftshift(axes)
"""
VALUES = """
e inf nan newaxis pi bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64
complex64 complex128 __array_api_version__ linalg fft
"""
METHODS = """
__abs__ __add__ __and__ __array_namespace__ __bool__ __complex__ __dlpack__ __dlpack_device__ __eq__
__float__ __floordiv__ __ge__ __getitem__ __gt__ __index__ __int__ __invert__ __le__ __lshift__
__lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __rshift__ __setitem__
__sub__ __truediv__ __xor__ to_device dtype device mT ndim shape size T
"""

STANDARD = {
    name: re.findall(r"\w+", arguments)
    for name, arguments in re.findall(r"([\w.]+)\(([^)]*)\)", FUNCTIONS)
}


def documented_as_absent():
    """Names in backquotes under the heading "Absent" of docs/array-api.md."""
    text = (Path(__file__).parents[3] / "docs" / "array-api.md").read_text()
    section = text.split("## Absent", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"`([\w.]+)`", section))


def found(name):
    owner = weft
    for part in name.split("."):
        if not hasattr(owner, part):
            return None
        owner = getattr(owner, part)
    return owner


@pytest.mark.parametrize("name", [*STANDARD, *VALUES.split()])
def test_is_there_or_documented_as_absent(name):
    is_there = hasattr(weft, name) if "." not in name else found(name) is not None
    assert is_there != (name in documented_as_absent())


@pytest.mark.parametrize("name", METHODS.split())
def test_method_is_there_or_documented_as_absent(name):
    assert hasattr(weft.Tensor, name) != (name in documented_as_absent())


def test_nothing_else_is_documented_as_absent():
    assert documented_as_absent() <= {*STANDARD, *VALUES.split(), *METHODS.split()}


def argument_names(function):
    """The argument names of a Python function, or of a bound one, whose docstring starts with its
    signature."""
    try:
        return set(inspect.signature(function).parameters)
    except ValueError:
        return set(re.findall(r"(\w+):", function.__doc__.splitlines()[0]))


@pytest.mark.parametrize("name", STANDARD)
def test_takes_the_standards_arguments(name):
    function = found(name)
    if function is not None:
        assert set(STANDARD[name]) <= argument_names(function)


@pytest.mark.parametrize("name", STANDARD)
def test_has_a_text(name):
    function = found(name)
    if function is not None:
        assert function.__doc__ and len(function.__doc__.split()) > 1


def test_constants():
    assert (weft.e, weft.pi, weft.inf, weft.newaxis) == (np.e, np.pi, np.inf, None)
    assert weft.nan != weft.nan
    assert weft.__array_api_version__ == "2024.12"


def test_the_namespace_of_a_tensor():
    x = weft.zeros((2, 3))
    assert x.__array_namespace__() is x.__array_namespace__(api_version="2023.12") is weft
    with pytest.raises(ValueError, match="version is '1999.01'"):
        x.__array_namespace__(api_version="1999.01")
    assert x.to_device("cpu") is x and x.to_device(x.device, stream=None) is x
    with pytest.raises(ValueError, match="is on meta, expected one with values to copy to cpu"):
        x.to_device("meta").to_device("cpu")
    assert x.mT.shape == x.T.shape == (3, 2)


def test_inspection():
    info = weft.__array_namespace_info__()
    assert info.default_device() == "cpu" and info.devices() == [weft.Device("cpu")]
    defaults = info.default_dtypes(device="cpu")
    assert defaults["real floating"] is weft.zeros(1).dtype
    assert defaults["integral"] is weft.arange(2).dtype
    assert defaults["indexing"] is weft.argmax(weft.zeros(1)).dtype
    assert defaults["complex floating"] is weft.complex64
    assert info.capabilities()["max dimensions"] == weft.zeros((1,) * 32).ndim
    with pytest.raises(ValueError):
        weft.zeros((1,) * 33)
    assert len(info.dtypes()) == 13  # bool, 8 integers, 2 floating, 2 complex
    for kind in (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "numeric",
    ):
        for name, dtype in info.dtypes(kind=kind).items():
            assert dtype is getattr(weft, name) and weft.isdtype(dtype, kind)
            assert np.isdtype(np.dtype(name), kind)
    assert [*info.dtypes(kind=("bool", "integral"))] == [
        "bool",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    ]
    with pytest.raises(ValueError, match="kind is 'odd', expected one of"):
        info.dtypes(kind="odd")


@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
def test_limits_of_floats_are_numpys(name):
    ours, theirs = weft.finfo(getattr(weft, name)), np.finfo(name)
    assert ours.bits == theirs.bits and ours.dtype is getattr(weft, name)
    assert (ours.eps, ours.max, ours.min) == (theirs.eps, theirs.max, theirs.min)
    assert ours.smallest_normal == theirs.smallest_normal
    assert weft.finfo(weft.zeros(1, dtype=name)) == ours


def test_limits_of_bfloat16():
    # 1 sign, 8 bits of exponent, 7 of the fraction.
    limits = weft.finfo(weft.bfloat16)
    assert limits.eps == 2.0**-7 and limits.smallest_normal == 2.0**-126
    assert limits.max == float.fromhex("0x1.fep127") == -limits.min
    ones = weft.ones(1, dtype=weft.bfloat16)
    assert (ones + limits.eps).tolist() == [1 + limits.eps] and (
        ones + limits.eps / 2
    ).tolist() == [1]


@pytest.mark.parametrize(
    "name", [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
def test_limits_of_integers_are_numpys(name):
    ours, theirs = weft.iinfo(weft.zeros(1, dtype=name)), np.iinfo(name)
    assert (ours.bits, ours.max, ours.min) == (theirs.bits, theirs.max, theirs.min)


def test_result_type_with_numbers():
    assert weft.result_type(weft.float16, 1, 2.5, True) is weft.float16
    assert weft.result_type(weft.zeros(2, dtype="uint8"), 3) is weft.uint8
    assert weft.result_type(weft.bool, 3) is weft.int64
    assert weft.result_type(weft.bool, True) is weft.bool
    assert weft.result_type(weft.int32, 3.5) is weft.float32
