# SPDX-License-Identifier: Apache-2.0
"""New tensors: from numbers, from other libraries' arrays, and in the layout of another tensor."""

import array

import numpy as np
import pytest

import weft
from array_compare import check, to_numpy, to_weft

DTYPES = ["float32", "float64", "float16", "bool"]
DTYPES += [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), 3, (0,), (2, 3), [3, 1]])
def test_filled(shape, dtype):
    ours = getattr(weft, dtype)
    for name in ("zeros", "ones"):
        check(
            getattr(weft, name)(shape, dtype=ours, device=None),
            getattr(np, name)(shape, dtype),
            "asked",
        )
    check(weft.full(shape, 3, dtype=ours, device="cpu"), np.full(shape, 3, dtype), "asked")
    assert weft.empty(shape, dtype=ours, device=weft.Device("cpu")).shape == np.empty(shape).shape


def test_defaults():
    assert weft.zeros(2).dtype is weft.ones(2).dtype is weft.empty(2).dtype is weft.float32
    assert weft.linspace(0, 1, 3).dtype is weft.eye(2).dtype is weft.float32
    assert [weft.full(1, x).dtype.name for x in (True, 2, 2.0)] == ["bool", "int64", "float32"]
    assert [weft.asarray(x).dtype.name for x in (True, 2, 2.0)] == ["bool", "int64", "float32"]
    assert weft.arange(3).dtype is weft.int64 and weft.arange(3.0).dtype is weft.float32
    assert weft.arange(0, 1, 0.5).dtype is weft.float32


@pytest.mark.parametrize("value", [2**53 + 1, -(2**63), 2**63 - 1, float("nan"), -0.0, np.int64(7)])
def test_full_is_exact(value):
    ours, theirs = weft.full((2, 3), value), np.full((2, 3), value)
    assert np.array_equal(to_numpy(ours), theirs, equal_nan=True)
    assert np.array_equal(to_numpy(weft.full_like(ours, value)), theirs, equal_nan=True)
    assert np.array_equal(np.signbit(to_numpy(ours)), np.signbit(theirs))
    assert np.array_equal(np.signbit(to_numpy(weft.full_like(ours, value))), np.signbit(theirs))


RANGES = [(5,), (2, 7), (7, 2), (1, 10, 3), (10, 1, -3), (0,), (-3, 3, 2), (3, 10, 7), (-2,)]
BROKEN_RANGES = [(2.5,), (0, 1, 0.25), (1, 0, -0.3), (0.5, 3.5)]


@pytest.mark.parametrize("numbers", RANGES + BROKEN_RANGES)
def test_arange(numbers):
    check(weft.arange(*numbers), np.arange(*numbers), "float32")
    check(weft.arange(*numbers, dtype=weft.float64), np.arange(*numbers, dtype="float64"), "asked")


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("num", [0, 1, 2, 7])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_linspace(dtype, num, endpoint):
    start = 1 if dtype == "int64" else -1  # where rounding down is towards zero
    ours = weft.linspace(start, 5, num, dtype=getattr(weft, dtype), endpoint=endpoint)
    check(ours, np.linspace(start, 5, num, dtype=dtype, endpoint=endpoint), "asked")


def test_eye_far_from_the_diagonal():
    assert float(weft.sum(weft.eye(3, 2, k=2**70))) == float(weft.sum(weft.eye(3, k=-(2**65)))) == 0


@pytest.mark.parametrize("sizes", [(3,), (3, 5), (5, 3), (0, 2), (3, None)])
def test_eye(sizes):
    for k in range(-4, 6):
        check(weft.eye(*sizes, k=k), np.eye(*sizes, k=k), "float32")
        check(weft.eye(*sizes, k=k, dtype=weft.int32), np.eye(*sizes, k=k, dtype="int32"), "asked")


def test_meshgrid_of_few():
    assert weft.meshgrid() == []
    x = np.array([1.0, 2.0], "float32")
    for indexing in ("xy", "ij"):
        check(
            weft.meshgrid(to_weft(x), indexing=indexing),
            np.meshgrid(x, indexing=indexing),
            "float32",
        )


NESTED = [
    [[1, 2], [3, 4]],
    [[1.5, 2], [3, -0.0]],
    [True, False],
    [],
    [[], []],
    ((1, 2), (3, 4)),
    2**53 + 1,
    float("nan"),
    [np.float32(1.5), np.float32(2)],
    [np.arange(3), np.arange(3)],
]


@pytest.mark.parametrize("values", NESTED, ids=repr)
def test_asarray_of_nested_lists(values):
    check(weft.asarray(values), np.asarray(values), "float32")
    check(weft.asarray(values, dtype=weft.float64), np.asarray(values, "float64"), "asked")
    check(weft.tensor(values), np.asarray(values), "float32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_asarray_of_numpy(dtype):
    values = np.array([[1, 0, 3], [2, 1, 1]], dtype)
    for theirs in (
        values,
        values.T,
        values[:, ::2],
        values[::-1],
        values[1, 2],
        values[:0],
        values[0],
    ):
        ours = weft.asarray(theirs)
        check(ours, theirs, "asked")
        check(weft.asarray(ours, dtype=weft.float64), np.asarray(theirs, "float64"), "asked")
        check(weft.from_dlpack(ours), theirs, "asked")


def test_asarray_shares_unless_told():
    theirs = np.zeros(3, "float32")
    shared, copy = weft.asarray(theirs), weft.asarray(theirs, copy=True)
    also, again = weft.asarray(shared), weft.asarray(shared, copy=True)
    never = weft.asarray(theirs, copy=False)
    theirs[1] = 5
    assert [x.tolist()[1] for x in (shared, also, never)] == [5, 5, 5]
    assert [x.tolist()[1] for x in (copy, again)] == [0, 0]
    with pytest.raises(ValueError, match="for copy=False"):
        weft.asarray(theirs, dtype=weft.float64, copy=False)
    with pytest.raises(ValueError, match="copy is False"):
        weft.asarray([1, 2], copy=False)


def test_asarray_of_buffers_and_parameters():
    assert weft.asarray(array.array("d", [1, 2])).tolist() == [1, 2]
    assert weft.asarray(b"\x01\x02").dtype is weft.uint8
    assert weft.asarray(memoryview(b"\x01\x02")).tolist() == [1, 2]
    assert weft.asarray([weft.asarray(1.5), weft.asarray(2.5)]).tolist() == [1.5, 2.5]
    module = weft.nn.Linear(2, 3)
    module.materialize()
    assert weft.asarray(module.parameters()[0]).shape == (3, 2)


def test_bfloat16():
    ours = weft.asarray([1.00390625, 3e38, float("nan")], dtype=weft.bfloat16)
    assert ours.dtype is weft.bfloat16
    assert ours.tolist()[0] == 1.0 and ours.tolist()[2] != ours.tolist()[2]
    assert weft.full(2, 1.5, dtype="bfloat16").tolist() == [1.5, 1.5]
    assert weft.asarray(weft.ones(2, dtype=weft.bfloat16), copy=True).dtype is weft.bfloat16


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_astype_copies_unless_told(dtype):
    x = weft.ones((2, 3), dtype=dtype)
    copy, same = weft.astype(x, x.dtype), weft.astype(x, x.dtype, copy=False)
    named = weft.astype(x, dtype, device="cpu")
    x[0, 0] = 0
    assert (copy.tolist()[0][0], same.tolist()[0][0], named.tolist()[0][0]) == (1, 0, 1)


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_astype_between_all(a, b):
    x = np.array([0, 1, 2.75, 100]).astype(a)
    check(weft.astype(to_weft(x), getattr(weft, b)), x.astype(b), "asked")


def like(x):
    """(name, tensor, value) of all functions that make a tensor like x."""
    yield "zeros_like", weft.zeros_like(x), 0
    yield "ones_like", weft.ones_like(x), 1
    yield "full_like", weft.full_like(x, 3), 3 if x.dtype is not weft.bool else 1
    yield "full_like", weft.full_like(x, True), 1
    yield "asarray", weft.asarray(weft.ones_like(x), copy=True), 1
    yield "astype", weft.astype(weft.ones_like(x), x.dtype), 1
    if x.dtype.is_floating_point:
        yield "full_like", weft.full_like(x, float("inf")), float("inf")


LAYOUTS = [
    [weft.Replicate(), weft.Replicate()],
    [weft.Shard(0), weft.Replicate()],
    [weft.Shard(1), weft.Shard(0)],
    [weft.Shard(1), weft.Shard(1)],
    [weft.Partial("sum"), weft.Shard(0)],
    [weft.Partial("sum"), weft.Partial("sum")],
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
def test_like_keeps_the_layout(dtype):
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2, "b": 2})
        for layout in LAYOUTS:
            if weft.Partial("sum") in layout and dtype in ("int64", "bool"):
                continue
            x = weft.zeros((5, 7), dtype=dtype, mesh=mesh, placements=layout)
            for name, made, value in [*like(x), ("empty_like", weft.empty_like(x), None)]:
                what = f"{name} of {x} is {made}"
                assert list(made.placements) == layout and made.device_mesh == mesh, what
                assert made.shape == (5, 7) and made.dtype is x.dtype, what
                assert value is None or np.all(to_numpy(made) == value), what

    weft.run_ranks(4, body, deadline=30)


def test_like_of_another_dtype():
    def body(world):
        mesh = weft.DeviceMesh(world, {"x": 3})
        x = weft.zeros((5, 7), mesh=mesh, placements=[weft.Shard(1)])
        for made, value in (
            (weft.zeros_like(x, dtype=weft.int32), 0),
            (weft.ones_like(x, dtype="bool"), 1),
            (weft.full_like(x, 2**53 + 1, dtype=weft.int64), 2**53 + 1),
            (weft.empty_like(x, dtype=weft.float64), None),
        ):
            assert list(made.placements) == [weft.Shard(1)] and made.dtype is not x.dtype
            assert value is None or np.all(to_numpy(made) == value)
        assert np.all(to_numpy(weft.full_like(x, 2, dtype=weft.uint8)) == 2)

    weft.run_ranks(3, body, deadline=30)
    assert weft.empty_like(weft.zeros((2, 0), dtype=weft.int32)).dtype is weft.int32


def test_made_over_a_mesh():
    def body(world):
        mesh = weft.DeviceMesh(world, {"x": 4})
        over = {"mesh": mesh, "placements": [weft.Shard(0)]}
        for ours, theirs in (
            (weft.zeros((5, 2), **over), np.zeros((5, 2))),
            (weft.ones((5, 2), **over), np.ones((5, 2))),
            (weft.full((5, 2), 2.5, **over), np.full((5, 2), 2.5)),
            (weft.full((5,), 2**53 + 1, **over), np.full((5,), 2**53 + 1)),
            (weft.arange(5, **over), np.arange(5)),
            (weft.linspace(0, 1, 7, **over), np.linspace(0, 1, 7)),
            (weft.eye(5, 7, **over), np.eye(5, 7)),
        ):
            assert list(ours.placements) == [weft.Shard(0)]
            assert np.allclose(to_numpy(ours), theirs, atol=1e-7)

    weft.run_ranks(4, body, deadline=30)
