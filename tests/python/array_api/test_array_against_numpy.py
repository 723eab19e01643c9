# SPDX-License-Identifier: Apache-2.0
"""Compares every function with NumPy, on one device and for every supported dtype."""

import numpy as np
import pytest

import weft
from array_cases import CASES, DTYPES, FAMILIES, OF_ONE, OF_TWO, dtypes_of, operands_of
from array_compare import check, check_dtypes, flat, to_numpy, to_weft

# NumPy has no nextafter of bfloat16, and no singular values of float16.
LACKING = {("nextafter", "bfloat16")}
LACKING |= {(f"matrix_norm {order}", "float16") for order in ("nuc", 2, -2)}
CALLS = [
    (case, dtype)
    for case in CASES
    for dtype in dtypes_of(case)
    if (case.name, dtype) not in LACKING
]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def wide(array):
    return array.astype("float32") if array.dtype == "float16" else array


@pytest.mark.parametrize(
    "case, dtype", CALLS, ids=[f"{case.name}-{dtype}" for case, dtype in CALLS]
)
def test_agrees(case, dtype):
    operands = operands_of(case, dtype)
    ours = case.call(weft, *(to_weft(operand, dtype) for operand in operands))
    theirs = case.numpy(*operands)
    check_dtypes(ours, theirs, "asked" if "dtype=" in case.name else dtype)
    # NumPy rounds intermediate values to float16; the bound is for one rounding at the end.
    if "int" in dtype and np.asarray(flat(theirs)[0]).dtype.kind == "f":
        operands = [operand.astype("int32") for operand in operands]
    check(ours, theirs if case.name == "nextafter" else case.numpy(*map(wide, operands)))


@pytest.mark.parametrize("family", FAMILIES)
def test_takes_parameters(family):
    for case in FAMILIES[family]:
        if "f" in case.kinds and case.name != "where as condition":  # which compares by an operator
            first, *others = operands_of(case, "float32")
            with weft.no_grad():
                ours = case.call(weft, weft.Parameter(to_weft(first)), *map(to_weft, others))
            check(ours, case.numpy(first, *others), None if "dtype=" in case.name else "float32")


EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 1e-30, -3e4, 2.0, 3.0]


def same_with_signs(ours, theirs):
    check(ours, theirs)
    if theirs.dtype.kind == "f":
        zeros = theirs == 0
        assert np.array_equal(np.signbit(to_numpy(ours))[zeros], np.signbit(theirs)[zeros])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("case", [c for c in OF_ONE if "f" in c.kinds], ids=lambda c: c.name)
def test_edges_of_one(case, dtype):
    x = np.array(EDGES).astype(dtype)
    same_with_signs(case.call(weft, to_weft(x)), case.numpy(x))


NAMES_OF_TWO = sorted({c.name.split()[0] for c in OF_TWO if "f" in c.kinds})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES_OF_TWO)
def test_edges_of_two(name, dtype):
    x = np.array(EDGES).astype(dtype)
    x, y = x[:, None], x[None, :]
    ours = getattr(weft, name)(to_weft(x), to_weft(y))
    theirs = getattr(np, name)(x, y)
    if name in ("floor_divide", "remainder"):
        # For division by 0 the standard leaves the result open; test_array_edges has infinities.
        defined = np.isfinite(x) & (y != 0) & np.isfinite(theirs)
        defined &= np.isfinite(y) | (name == "remainder")
        assert np.array_equal(to_numpy(ours)[defined], theirs[defined])
        return
    same_with_signs(ours, theirs)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0)])
def test_functions_of_each_element_take_any_shape(shape):
    x = np.full(shape, 0.5, "float32")
    for case in OF_ONE:
        if "f" in case.kinds:
            check(case.call(weft, to_weft(x)), case.numpy(x), "float32")
    for name in NAMES_OF_TWO:
        theirs = getattr(np, name)(x, x)
        check(getattr(weft, name)(to_weft(x), to_weft(x)), theirs, "float32")


def test_reductions_of_nothing():
    x = np.zeros((0, 3), "float32")
    for name in ("sum", "prod", "all", "any", "count_nonzero", "mean", "var", "std"):
        for axis in (None, 0, 1):
            with pytest.warns() if name in ("mean", "var", "std") and axis != 1 else quiet_scope():
                theirs = getattr(np, name)(x, axis=axis)
            check(getattr(weft, name)(to_weft(x), axis=axis), theirs, "float32")
    for name in ("max", "min", "argmax", "argmin"):
        check(getattr(weft, name)(to_weft(x), axis=1), getattr(np, name)(x, axis=1), "float32")
        with pytest.raises(ValueError, match="must be at least 1, got 0"):
            getattr(weft, name)(to_weft(x), axis=0)


def quiet_scope():
    return np.errstate(all="ignore")


def test_reductions_without_dims():
    x = np.array(2.5, "float32")
    for name in "sum prod all any count_nonzero mean var std max min argmax argmin".split():
        check(getattr(weft, name)(to_weft(x)), getattr(np, name)(x), "float32")


def test_a_correction_of_all_elements_divides_by_zero():
    x = np.array([1.0, 2.0, 4.0], "float32")
    assert to_numpy(weft.var(to_weft(x), correction=3)) == np.inf
    assert np.isnan(to_numpy(weft.std(to_weft(x[:1]), correction=1)))


@pytest.mark.parametrize(
    "name", ["max", "min", "argmax", "argmin", "sum", "prod", "sort", "argsort"]
)
def test_nan_among_elements(name):
    x = np.array([[1, np.nan, 3], [np.inf, 2, -np.inf], [np.nan, np.nan, 0]], "float32")
    for axis in (0, 1):
        check(
            getattr(weft, name)(to_weft(x), axis=axis), getattr(np, name)(x, axis=axis), "float32"
        )


def test_sets_take_every_nan_for_itself():
    x = np.array([np.nan, 1, np.nan, -0.0, 0.0, np.inf, 1], "float32")
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        check(getattr(weft, name)(to_weft(x)), getattr(np, name)(x), None)


EMPTY = [
    lambda xp, x: xp.sort(x, axis=0),
    lambda xp, x: xp.argsort(x, axis=1),
    lambda xp, x: xp.cumulative_sum(x, axis=0, include_initial=True),
    lambda xp, x: xp.cumulative_prod(x, axis=1),
    lambda xp, x: xp.diff(x, axis=0),
    lambda xp, x: xp.flip(x),
    lambda xp, x: xp.roll(x, 2, axis=0),
    lambda xp, x: xp.roll(x, 2),
    lambda xp, x: xp.repeat(x, 2, axis=0),
    lambda xp, x: xp.tile(x, (2, 2)),
    lambda xp, x: xp.concat([x, xp.ones((2, 3), dtype=xp.float32)]),
    lambda xp, x: xp.stack([x, x], axis=1),
    lambda xp, x: xp.reshape(x, (3, 0, 2)),
    lambda xp, x: xp.tril(x),
    lambda xp, x: [*xp.nonzero(x)],
    lambda xp, x: [*xp.unique_all(x)],
    lambda xp, x: xp.matmul(xp.matrix_transpose(x), x),
    lambda xp, x: xp.tensordot(x, x, axes=((0,), (0,))),
    lambda xp, x: xp.vecdot(x, x, axis=-2),
    lambda xp, x: xp.linalg.diagonal(x),
    lambda xp, x: xp.linalg.trace(x),
    lambda xp, x: xp.linalg.vector_norm(x),
    lambda xp, x: [*xp.unstack(x, axis=1)],
    lambda xp, x: [*xp.unstack(x)],
    lambda xp, x: xp.take(x, xp.asarray([2, 0]), axis=1),
    lambda xp, x: xp.broadcast_to(x, (2, 0, 3)),
    lambda xp, x: xp.searchsorted(xp.reshape(x, (0,)), xp.ones((2,), dtype=xp.float32)),
]


@pytest.mark.parametrize("call", EMPTY, ids=range(len(EMPTY)))
def test_no_elements(call):
    x = np.zeros((0, 3), "float32")
    check(call(weft, to_weft(x)), call(np, x), "float32")


WITHOUT_DIMS = [
    lambda xp, x: xp.expand_dims(x, axis=0),
    lambda xp, x: xp.flip(x),
    lambda xp, x: xp.roll(x, 1),
    lambda xp, x: xp.repeat(x, 2),
    lambda xp, x: xp.tile(x, (2, 3)),
    lambda xp, x: xp.stack([x, x]),
    lambda xp, x: xp.concat([x, x], axis=None),
    lambda xp, x: xp.reshape(x, (1, 1)),
    lambda xp, x: xp.broadcast_to(x, (2, 3)),
    lambda xp, x: xp.clip(x, 0, 1),
    lambda xp, x: xp.where(x > 0, x, -x),
    lambda xp, x: [*xp.unique_all(x)],
    lambda xp, x: [*xp.broadcast_arrays(x, xp.ones((2, 1), dtype=xp.float32))],
    lambda xp, x: xp.tensordot(x, x, axes=0),
    lambda xp, x: xp.linalg.vector_norm(x),
    lambda xp, x: xp.permute_dims(x, ()),
    lambda xp, x: xp.searchsorted(xp.asarray([1.0, 2.0], dtype=xp.float32), x),
]


@pytest.mark.parametrize("call", WITHOUT_DIMS, ids=range(len(WITHOUT_DIMS)))
def test_no_dims(call):
    x = np.array(2.5, "float32")
    check(call(weft, to_weft(x)), call(np, x), "float32")


FLOATING = ["float32", "float64", "float16"]
INTEGRAL = [*DTYPES["i"], *DTYPES["u"]]
# For mixed kinds, and for uint64 with a signed dtype, the standard leaves the result open.
PAIRS = [
    (a, b)
    for kind in (FLOATING, INTEGRAL, ["bool"])
    for a in kind
    for b in kind
    if "uint64" not in (a, b) or a[0] == b[0]
]


@pytest.mark.parametrize("signed", DTYPES["i"])
def test_no_dtype_holds_uint64_and_a_signed_integer(signed):
    x, y = weft.ones(3, dtype="uint64"), weft.ones(3, dtype=signed)
    calls = (lambda: x + y, lambda: y * x, lambda: weft.less(x, y), lambda: weft.concat((x, y)))
    for call in calls:
        with pytest.raises(ValueError, match="expected ones whose values an integer dtype holds"):
            call()
    assert not weft.can_cast(x, y.dtype) and not weft.can_cast(y, x.dtype)
    assert (x + y.to(weft.uint64)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("a, b", PAIRS)
def test_promotion_within_a_kind_is_numpys(a, b):
    x, y = np.array([1, 0, 1], a), np.array([1, 1, 0], b)
    ours, theirs = (to_weft(x), to_weft(y)), (x, y)
    assert weft.result_type(getattr(weft, a), ours[1]).name == np.result_type(a, b).name
    assert weft.can_cast(getattr(weft, a), ours[1]) == np.can_cast(a, b)
    check(weft.add(*ours), np.add(*theirs), "asked")
    check(weft.concat(ours), np.concat(theirs), "asked")
    check(weft.stack(ours), np.stack(theirs), "asked")
    if a != "bool":
        check(weft.matmul(*ours), np.matmul(*theirs), "asked")
        check(weft.vecdot(*ours), np.vecdot(*theirs), "asked")


@pytest.mark.parametrize("dtype", INTEGRAL)
def test_clip_to_numbers_beyond_the_dtype(dtype):
    x = np.array([0, 1, 100], dtype)
    for bounds in ((-float("inf"), 50), (1, float("inf")), (-(10**12), 10**12), (2, 10**30)):
        if bounds == (-(10**12), 10**12) and dtype == "int64":
            continue
        wide = np.clip(x.astype("float64"), *bounds).astype(dtype)
        check(weft.clip(to_weft(x), *bounds), wide, dtype)
    with pytest.raises(ValueError, match="expected one that a tensor of"):
        weft.clip(to_weft(x), 2**70)
    with pytest.raises(ValueError, match="expected one that a tensor of"):
        weft.clip(to_weft(x), max=-float("inf"))
