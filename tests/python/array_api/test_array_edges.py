# SPDX-License-Identifier: Apache-2.0
"""Checks findings of the standard's official suite, and integers of all sizes at their ends."""

import numpy as np
import pytest

import weft
from array_compare import check, to_numpy, to_weft

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
LARGE = 2**53 + 1


def ends_of(dtype):
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.min + 1, 0, 1, 7, limits.max - 1, limits.max], dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_wraps_and_compares_as_numpy(dtype):
    x = ends_of(dtype)
    y = x[::-1].copy()
    a, b = to_weft(x), to_weft(y)
    with np.errstate(all="ignore"):
        check(a + b, x + y, dtype)
        check(a - b, x - y, dtype)
        check(a * b, x * y, dtype)
        check(-a, -x, dtype)
        check(abs(a), abs(x), dtype)
        check(a // weft.maximum(b, 1), x // np.maximum(y, 1), dtype)
        check(a % weft.maximum(b, 1), x % np.maximum(y, 1), dtype)
        check(a + 5, x + np.array(5, dtype), dtype)
        check(5 - a, np.array(5, dtype) - x, dtype)
        check(a * 3, x * np.array(3, dtype), dtype)
        check(a**2, x**2, dtype)
        check(a << 3, x << np.array(3, dtype), dtype)
    check(a >> 3, x >> np.array(3, dtype), dtype)
    check(~(a & b) ^ (a | b), ~(x & y) ^ (x | y), dtype)
    for name in ("less", "less_equal", "greater", "greater_equal", "equal", "maximum", "minimum"):
        check(getattr(weft, name)(a, b), getattr(np, name)(x, y), "asked")
    check(weft.sign(a), np.sign(x), dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_moves_sorts_and_reduces_as_numpy(dtype):
    x = np.stack([ends_of(dtype), ends_of(dtype)[::-1]])
    a = to_weft(x)
    for axis in (0, 1):
        check(weft.sort(a, axis=axis), np.sort(x, axis=axis), dtype)
        check(weft.sort(a, axis=axis, descending=True), np.flip(np.sort(x, axis=axis), axis), dtype)
        check(weft.argsort(a, axis=axis), np.argsort(x, axis=axis, kind="stable"))
        check(weft.argmax(a, axis=axis), np.argmax(x, axis=axis))
        check(weft.max(a, axis=axis), np.max(x, axis=axis), dtype)
        check(weft.min(a, axis=axis), np.min(x, axis=axis), dtype)
        check(weft.sum(a, axis=axis), np.sum(x, axis=axis), "asked")
        check(weft.prod(a, axis=axis), np.prod(x, axis=axis), "asked")
        check(weft.cumulative_sum(a, axis=axis), np.cumulative_sum(x, axis=axis), "asked")
        check(weft.roll(a, 1, axis=axis), np.roll(x, 1, axis=axis), dtype)
        check(weft.flip(a, axis=axis), np.flip(x, axis=axis), dtype)
    index = np.array([3, 0, 3], dtype)
    check(weft.take(a, to_weft(index), axis=1), np.take(x, index, axis=1), dtype)
    check(a[:, to_weft(index)], x[:, index], dtype)
    check(a[a > 1], x[x > 1], dtype)
    check(weft.where(a > 1, a, weft.zeros_like(a)), np.where(x > 1, x, 0).astype(dtype), dtype)
    check(weft.matmul(a, a.T), x @ x.T, dtype)
    assert repr(a.tolist()) == repr(x.tolist())
    assert [int(one) for one in weft.reshape(a, (-1,))] == x.reshape(-1).tolist()


@pytest.mark.parametrize("source", [*INTEGERS, "float32", "float64", "float16", "bool"])
@pytest.mark.parametrize("target", [*INTEGERS, "float32", "float64", "float16", "bool"])
def test_casts_as_numpy(source, target):
    x = ends_of(source) if "int" in source else np.array([0, 1, 2.75, 100]).astype(source)
    with np.errstate(over="ignore"):
        check(to_weft(x).to(getattr(weft, target)), x.astype(target), "asked")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shares_memory_with_numpy_and_dlpack(dtype):
    x = ends_of(dtype)
    for made in (weft.from_numpy(x), weft.from_dlpack(x), weft.asarray(x)):
        assert made.dtype.name == dtype and made.numpy().dtype == dtype
        made[3] = 5
        assert x[3] == 5 and np.from_dlpack(made)[3] == 5
        x[3] = 1


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_numbers_of_64_bits_are_exact(dtype):
    x = np.array([1, LARGE], dtype)
    a = to_weft(x)
    number = np.array(LARGE, dtype)
    check(a + LARGE, x + number, dtype)
    check(LARGE - a, number - x, dtype)
    check(a - LARGE, x - number, dtype)
    check(a * LARGE, x * number, dtype)
    check(a == LARGE, x == number)
    check(a // LARGE, x // number, dtype)
    check(weft.where(a > 1, a, LARGE), np.where(x > 1, x, number), dtype)
    check(weft.clip(a, LARGE, None), np.clip(x, number, None), dtype)
    check(weft.full(2, LARGE, dtype=dtype), np.full(2, number), "asked")
    a += LARGE
    check(a, x + number, dtype)
    a[0] = LARGE + 2
    assert a[0].item() == LARGE + 2
    assert (weft.zeros(1, dtype="uint64") + (2**64 - 1)).tolist() == [2**64 - 1]
    with pytest.raises(ValueError, match="expected one of 64 bits"):
        a + 2**64


@pytest.mark.parametrize(
    "numbers", [(LARGE, LARGE + 9, 4), (-LARGE, 0, 2**48 + 1), (LARGE, 0, -(2**48) - 1), (5, 5, 3)]
)
def test_arange_of_large_integers(numbers):
    check(weft.arange(*numbers), np.arange(*numbers), "asked")


def test_arange_to_the_ends_of_uint64():
    made = weft.arange(2**64 - 5, 2**64 - 1, 2, dtype=weft.uint64)
    assert made.tolist() == [2**64 - 5, 2**64 - 3]


@pytest.mark.parametrize("mask", [True, False])
def test_masks_without_dims(mask):
    for x in (np.float32(3), np.arange(6, dtype="float32").reshape(2, 3)):
        a = to_weft(np.array(x))
        check(a[weft.asarray(mask)], np.array(x)[mask])
        check(a[mask], np.array(x)[mask])
        b, y = weft.asarray(a, copy=True), np.array(x)
        b[weft.asarray(mask)] = 7.0
        y[mask] = 7
        check(b, y)


def test_an_empty_mask_selects_nothing():
    assert weft.ones((3, 2))[weft.ones((0,), dtype="bool")].shape == (0, 2)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "all", "any", "var", "std"])
@pytest.mark.parametrize("keepdims", [True, False])
def test_reduces_over_no_dim(name, keepdims):
    x = np.array([[1, 2, 3], [0, -1, 5]], "float32")
    ours = getattr(weft, name)(to_weft(x), axis=(), keepdims=keepdims)
    check(ours, getattr(np, name)(x, axis=(), keepdims=keepdims), "float32")


def test_names_no_dims():
    x = np.ones((1, 2), "float32")
    a = to_weft(x)
    check(weft.squeeze(a, ()), x)
    check(weft.moveaxis(a, (), ()), x)
    check(weft.flip(a, axis=()), x)
    check(weft.tensordot(a, a, axes=((), ())), np.tensordot(x, x, axes=((), ())))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floor_divide_at_infinities(dtype):
    # The standard's special cases; NumPy has NaN and -1 for most of them.
    inf = np.inf
    a = np.array([inf, inf, -inf, -inf, 1, -1, 1, -1, inf, 0], dtype)
    b = np.array([2, -2, 2, -2, inf, inf, -inf, -inf, inf, 0], dtype)
    expected = np.array([inf, -inf, -inf, inf, 0.0, -0.0, -0.0, 0.0, np.nan, np.nan], dtype)
    ours = to_numpy(weft.floor_divide(to_weft(a), to_weft(b)))
    assert np.array_equal(ours, expected, equal_nan=True)
    zeros = expected == 0
    assert np.array_equal(np.signbit(ours[zeros]), np.signbit(expected[zeros]))


def test_conjugates_of_real_numbers():
    x = weft.asarray([1.0, 2.0])
    assert np.shares_memory(weft.conj(x).numpy(), x.numpy())


def test_totals_of_unsigned_integers():
    x = weft.ones(3, dtype="uint8")
    assert weft.sum(x).dtype is weft.uint64
    assert weft.torch.sum(x).dtype is weft.int64
    assert weft.torch.cumsum(x, 0).dtype is weft.int64
