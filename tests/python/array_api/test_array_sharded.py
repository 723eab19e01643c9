# SPDX-License-Identifier: Apache-2.0
"""The same values for sharded tensors: the first operand in every layout, the others replicated."""

import numpy as np
import pytest

import weft
from array_cases import CASES, FAMILIES, operands_of
from array_compare import difference, flat, to_numpy, to_weft

DEADLINE = 30.0
BOUND = 1e-5


def addends(whole, ranks):
    """Parts of mixed signs that sum up to `whole`, exactly because they are sixteenths."""
    draw = np.random.default_rng(5)
    parts = [draw.integers(-32, 33, whole.shape) / 16 for _ in range(ranks - 1)]
    last = whole.astype("float64") - sum(parts)
    return [part.astype(whole.dtype) for part in (*parts, last)]


def partial(whole, mesh, placements):
    """`whole` laid out by `placements`, with different addends on the ranks of the Partial axes."""
    axes = [a for a, p in enumerate(placements) if isinstance(p, weft.Partial)]
    position, ranks = 0, 1
    for axis in axes:
        position = position * mesh.size(axis) + mesh.get_local_rank(axis)
        ranks *= mesh.size(axis)
    part = addends(whole, ranks)[position]
    others = [weft.Replicate() if a in axes else p for a, p in enumerate(placements)]
    local = weft.distribute(to_weft(part), mesh, others).local()
    return weft.from_local(local, mesh, placements, shape=whole.shape)


def laid_out(whole, mesh, placements):
    if any(isinstance(p, weft.Partial) for p in placements):
        return partial(whole, mesh, placements)
    return weft.distribute(to_weft(whole), mesh, placements)


def every_placement(whole, takes_partial):
    yield weft.Replicate()
    yield from (weft.Shard(dim) for dim in range(whole.ndim))
    if takes_partial and whole.dtype.kind == "f":
        yield weft.Partial("sum")


def wrongs_of(case, dtype, mesh, layouts):
    """A line for each result that differs from NumPy's, and for each call that raises."""
    whole, *others = operands_of(case, dtype)
    theirs = flat(case.numpy(whole, *others))
    beside = [weft.distribute(to_weft(other), mesh) for other in others]
    wrongs = []
    for placements in layouts(whole, case.partial):
        what = f"{case.name} of {dtype} {list(whole.shape)} as {placements}"
        first = laid_out(whole, mesh, placements)
        assert np.array_equal(to_numpy(first), whole), f"{what}: the operand is another"
        try:
            ours = flat(case.call(weft, first, *beside))
        except (ValueError, TypeError, IndexError, RuntimeError) as raised:
            wrongs.append(f"{what}: {type(raised).__name__}: {raised}")
            continue
        if len(ours) != len(theirs):
            wrongs.append(f"{what}: {len(ours)} results, NumPy {len(theirs)}")
        for result, (tensor, array) in enumerate(zip(ours, theirs)):
            assert tensor.is_sharded, what
            wrong = difference(to_numpy(tensor), array, BOUND)
            if wrong:
                wrongs.append(f"{what}: result {result}: {wrong}")
    return wrongs


def wrongs_on(axes, cases, layouts, dtypes=("float32", "int64", "bool")):
    """The wrong results of all ranks; `layouts` yields lists of placements, one for each axis."""
    ranks = int(np.prod(list(axes.values())))

    def body(world):
        mesh = weft.DeviceMesh(world, axes)
        with np.errstate(all="ignore"):
            return [
                wrong
                for case in cases
                for dtype, kind in zip(dtypes, "fib")
                if kind in case.kinds
                for wrong in wrongs_of(case, dtype, mesh, layouts)
            ]

    # `partial` cuts addends that differ between ranks.
    found = weft.run_ranks(ranks, body, deadline=DEADLINE, checks_equality=False)
    return sorted({wrong for wrongs in found for wrong in wrongs})


def one_axis(whole, takes_partial):
    return ([placement] for placement in every_placement(whole, takes_partial))


def two_axes(whole, takes_partial):
    return (
        [outer, inner]
        for outer in every_placement(whole, takes_partial)
        for inner in every_placement(whole, takes_partial)
    )


def chunks(cases, size=24):
    return [cases[i : i + size] for i in range(0, len(cases), size)]


CHUNKS = [(family, cases) for family, all_of in FAMILIES.items() for cases in chunks(all_of)]


@pytest.mark.parametrize("family, cases", CHUNKS, ids=[f"{f} from {c[0].name}" for f, c in CHUNKS])
def test_every_placement_on_four_ranks(family, cases):
    assert wrongs_on({"x": 4}, cases, one_axis) == []


@pytest.mark.parametrize("family, cases", CHUNKS, ids=[f"{f} from {c[0].name}" for f, c in CHUNKS])
def test_three_ranks(family, cases):
    assert wrongs_on({"x": 3}, cases, one_axis, dtypes=("float32",)) == []


@pytest.mark.parametrize("family, cases", CHUNKS, ids=[f"{f} from {c[0].name}" for f, c in CHUNKS])
def test_every_pair_of_placements_on_two_by_two(family, cases):
    assert wrongs_on({"a": 2, "b": 2}, cases, two_axes, dtypes=("float32",)) == []


def test_a_wrong_result_is_seen():
    def shifted(xp, x):
        return x + 1 if xp is weft and x.placements[0] == weft.Shard(1) else x + 0

    found = wrongs_on({"x": 4}, [CASES[0]._replace(call=shifted, kinds="f")], one_axis)
    assert len(found) == 1 and "Shard(1)" in found[0]


def standardised(x):
    xp = x.__array_namespace__()
    return (x - xp.mean(x, axis=0)) / xp.std(x, axis=0)


def test_code_for_any_array_runs_on_sharded_tensors():
    whole = np.random.default_rng(1).normal(size=(5, 7)).astype("float32")
    theirs = standardised(whole)
    assert difference(to_numpy(standardised(to_weft(whole))), theirs, BOUND) is None

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2, "b": 2})
        ours = standardised(weft.distribute(to_weft(whole), mesh, {"a": weft.Shard(0)}))
        return ours.is_sharded, difference(to_numpy(ours), theirs, BOUND)

    assert weft.run_ranks(4, body, deadline=DEADLINE) == [(True, None)] * 4
