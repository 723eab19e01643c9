#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensor functions of `weft.torch` compared with PyTorch's, at 1 Mi elements, in one process.

    PYTHONPATH=build/release/python python benchmarks/python_functions.py --threads 1,2

The Python needs PyTorch. A case is one expression that runs on both libraries, on the same inputs,
without gradients. In each round both libraries run it for --seconds, one after the other; the
values are the fastest calls of all rounds, in microseconds, which other work on the machine delays
least, and the ratio is PyTorch's time divided by weft's (above 1 weft is faster). With one thread
they are CPU time. "rounds" is the range of the ratios of single rounds. Every result is compared
with PyTorch's first.
Prints a table for each group with the geometric mean of its ratios; --json prints a line a case.
"""

import argparse
import json
import math
import re
import time
import types

import numpy as np
import torch

import weft
import weft.torch

N, SIDE = 1 << 20, 1 << 10
# Threads of a library wait actively for some time after a call.
PAUSE = 0.004


def arrays():
    """The inputs: flat [N] where the name begins with "flat", scalars' partners as they need."""
    draw = np.random.default_rng(1)

    def integers(low, high, shape, dtype):
        return draw.integers(low, high, shape, dtype=dtype)

    square = (SIDE, SIDE)
    made = {
        "x": draw.standard_normal(square, np.float32),
        "y": draw.standard_normal(square, np.float32),
        "z": draw.standard_normal(square, np.float32),
        "flat": draw.standard_normal(N, np.float32),
        "part": draw.random(square, np.float32) * 1.8 - 0.9,
        "above": draw.random(square, np.float32) * 20 + 0.1,
        "near_one": draw.random(square, np.float32) * 0.02 + 0.99,
        "mask": draw.random(square) < 0.5,
        "columns": integers(0, SIDE, square, np.int64),
        "rows": integers(0, SIDE, SIDE, np.int64),
        "places": integers(0, N, N, np.int64),
        "order": draw.permutation(N),
        "classes": integers(0, 16, N // 16, np.int64),
        "words": integers(0, SIDE, (256, 4), np.int64),
        "few": integers(0, 1000, N, np.int64),
        "edges": np.sort(draw.standard_normal(SIDE, np.float32)),
        "sorted": np.sort(draw.standard_normal(N, np.float32)),
        "batch": draw.standard_normal((16, 256, 256), np.float32),
        "other": draw.standard_normal((16, 256, 256), np.float32),
        "points": draw.standard_normal((SIDE, 32), np.float32),
        "line": draw.standard_normal(SIDE, np.float32),
        "tile": draw.standard_normal((32, 32), np.float32),
        "variables": draw.standard_normal((64, N // 64), np.float32),
    }
    for bits in (8, 16, 32, 64):
        for name in "ab":
            made[f"i{bits}{name}"] = integers(-100, 100, square, f"int{bits}")
        made[f"i{bits}b"] += made[f"i{bits}b"] == 0
    for name in "ab":
        made[f"u8{name}"] = integers(0, 8, square, np.uint8)
    made["holes"] = np.where(made["mask"], np.float32(np.nan), made["x"])
    made["sparse"] = np.where(made["mask"], np.float32(0), made["x"])
    return made


def assigned(t, x, *index):
    made = x.clone()
    made[index] = 1.0
    return made


# The number of threads multiplies no work: each expression touches about 1 Mi elements once.
CASES = {
    "indexing": {
        "gather": lambda t, a: t.gather(a.x, 1, a.columns),
        "scatter": lambda t, a: t.scatter(a.x, 1, a.columns, a.y),
        "scatter_add": lambda t, a: t.scatter_add(a.x, 1, a.columns, a.y),
        "index_select": lambda t, a: t.index_select(a.x, 0, a.rows),
        "index_select dim 1": lambda t, a: t.index_select(a.x, 1, a.rows),
        "index_add": lambda t, a: t.index_add(a.x, 0, a.rows, a.y),
        "masked_fill": lambda t, a: a.x.masked_fill(a.mask, 2.0),
        "masked_select": lambda t, a: t.masked_select(a.x, a.mask),
        "nonzero": lambda t, a: t.nonzero(a.mask),
        "where": lambda t, a: t.where(a.mask, a.x, a.y),
        "take": lambda t, a: t.take(a.x, a.places),
        "x[index]": lambda t, a: a.x[a.rows],
        "x[mask] = 1": lambda t, a: assigned(t, a.x, a.mask),
        "index_put": lambda t, a: t.index_put(a.flat, (a.order,), a.x.reshape(-1)),
        "one_hot": lambda t, a: t.nn.functional.one_hot(a.classes, 16),
    },
    "order": {
        "sort": lambda t, a: t.sort(a.flat)[0],
        "sort rows": lambda t, a: t.sort(a.x, dim=1)[0],
        "sort dim 0": lambda t, a: t.sort(a.x, dim=0)[0],
        "sort i64": lambda t, a: t.sort(a.i64a, dim=1)[0],
        "argsort": lambda t, a: t.argsort(a.x, dim=1, stable=True),
        "topk 10": lambda t, a: t.topk(a.x, 10)[0],
        "topk 100 of all": lambda t, a: t.topk(a.flat, 100)[0],
        "kthvalue": lambda t, a: t.kthvalue(a.x, 300)[0],
        "median": lambda t, a: t.median(a.flat),
        "median rows": lambda t, a: t.median(a.x, dim=1)[0],
        "quantile": lambda t, a: t.quantile(a.x, 0.3, dim=1),
        "unique": lambda t, a: t.unique(a.few),
        "searchsorted": lambda t, a: t.searchsorted(a.sorted, a.x),
        "bucketize": lambda t, a: t.bucketize(a.x, a.edges),
        "histc": lambda t, a: t.histc(a.x, 100, -3, 3),
        "bincount": lambda t, a: t.bincount(a.few),
    },
    "scans": {
        "cumsum": lambda t, a: t.cumsum(a.x, 1),
        "cumsum dim 0": lambda t, a: t.cumsum(a.x, 0),
        "cumsum of all": lambda t, a: t.cumsum(a.flat, 0),
        "cumsum i64": lambda t, a: t.cumsum(a.i64a, 1),
        "cumprod": lambda t, a: t.cumprod(a.near_one, 1),
        "cummax": lambda t, a: t.cummax(a.x, 1)[0],
        "cummin dim 0": lambda t, a: t.cummin(a.x, 0)[0],
        "logcumsumexp": lambda t, a: t.logcumsumexp(a.x, 1),
        "logcumsumexp dim 0": lambda t, a: t.logcumsumexp(a.x, 0),
        "diff": lambda t, a: t.diff(a.x, dim=1),
        "trapezoid": lambda t, a: t.trapezoid(a.x, dim=1),
        "cumulative_trapezoid": lambda t, a: t.cumulative_trapezoid(a.x, dim=1),
    },
    "movement": {
        "flip": lambda t, a: t.flip(a.x, (0, 1)),
        "roll": lambda t, a: t.roll(a.x, 100, 1),
        "cat": lambda t, a: t.cat([a.x[:512], a.y[:512]], 1),
        "stack": lambda t, a: t.stack([a.x[:512], a.y[:512]], 2),
        "repeat_interleave": lambda t, a: t.repeat_interleave(a.x[:256], 4, 0),
        "tile": lambda t, a: t.tile(a.x[:512, :512], (2, 2)),
        "chunk + cat": lambda t, a: t.cat(t.chunk(a.x, 8, 1)[::-1], 1),
        "tril": lambda t, a: t.tril(a.x),
        "pad": lambda t, a: t.constant_pad_nd(a.x, (3, 3, 2, 2)),
        "rot90": lambda t, a: t.rot90(a.x),
        "transpose": lambda t, a: a.x.t().reshape(N),
        "permute": lambda t, a: a.batch.permute(2, 0, 1).reshape(N),
    },
    "pointwise": {
        "lerp": lambda t, a: t.lerp(a.x, a.y, 0.3),
        "addcmul": lambda t, a: t.addcmul(a.x, a.y, a.z, value=0.5),
        "addcdiv": lambda t, a: t.addcdiv(a.x, a.y, a.above, value=0.5),
        "logaddexp": lambda t, a: t.logaddexp(a.x, a.y),
        "erfinv": lambda t, a: t.erfinv(a.part),
        "lgamma": lambda t, a: t.lgamma(a.above),
        "digamma": lambda t, a: t.digamma(a.above),
        "nan_to_num": lambda t, a: t.nan_to_num(a.holes),
        "xlogy": lambda t, a: t.xlogy(a.x, a.above),
        "hypot": lambda t, a: t.hypot(a.x, a.y),
        "clamp": lambda t, a: t.clamp(a.x, -1, 1),
        "sinc": lambda t, a: t.sinc(a.x),
        "erfc": lambda t, a: t.erfc(a.x),
        "heaviside": lambda t, a: t.heaviside(a.x, a.y),
        "copysign": lambda t, a: t.copysign(a.x, a.y),
        "i0": lambda t, a: t.i0(a.x),
        "fmod": lambda t, a: t.fmod(a.x, a.above),
        "logit": lambda t, a: t.logit(a.part, eps=0.01),
    },
    "reductions": {
        "var": lambda t, a: t.var(a.x, dim=1),
        "std of all": lambda t, a: t.std(a.x),
        "var_mean dim 0": lambda t, a: t.var_mean(a.x, dim=0)[0],
        "amax": lambda t, a: t.amax(a.x, 1),
        "aminmax": lambda t, a: t.aminmax(a.x, dim=1)[1],
        "max with indices": lambda t, a: t.max(a.x, 1)[1],
        "argmin dim 0": lambda t, a: t.argmin(a.x, 0),
        "norm": lambda t, a: t.norm(a.x),
        "norm 3 rows": lambda t, a: t.norm(a.x, 3, dim=1),
        "logsumexp": lambda t, a: t.logsumexp(a.x, 1),
        "count_nonzero": lambda t, a: t.count_nonzero(a.sparse),
        "cov": lambda t, a: t.cov(a.variables),
        "prod": lambda t, a: t.prod(a.near_one, 1),
        "nansum": lambda t, a: t.nansum(a.holes, 1),
        "nanmean": lambda t, a: t.nanmean(a.holes, 1),
        "all": lambda t, a: t.all(a.mask, 1),
    },
    "integers": {
        "add i64": lambda t, a: a.i64a + a.i64b,
        "mul i32": lambda t, a: a.i32a * a.i32b,
        "add i8": lambda t, a: a.i8a + a.i8b,
        "mul i16": lambda t, a: a.i16a * a.i16b,
        "sub u8": lambda t, a: a.u8a - a.u8b,
        "eq u8": lambda t, a: a.u8a == a.u8b,
        "lt i64": lambda t, a: a.i64a < a.i64b,
        "gt i16": lambda t, a: a.i16a > a.i16b,
        "bitwise_and i32": lambda t, a: a.i32a & a.i32b,
        "bitwise_xor i8": lambda t, a: a.i8a ^ a.i8b,
        "bitwise_not i16": lambda t, a: ~a.i16a,
        "shift i64": lambda t, a: a.i64a << 3,
        "floor_divide i32": lambda t, a: a.i32a // a.i32b,
        "remainder i64": lambda t, a: a.i64a % a.i64b,
        "sum i8": lambda t, a: t.sum(a.i8a, 1),
        "maximum u8": lambda t, a: t.maximum(a.u8a, a.u8b),
        "abs i16": lambda t, a: t.abs(a.i16a),
        "amax i32": lambda t, a: t.amax(a.i32a, 1),
    },
    "products": {
        "einsum": lambda t, a: t.einsum("bij,bkj->bik", a.batch, a.other),
        "einsum diagonal": lambda t, a: t.einsum("bij,bij->bi", a.batch, a.other),
        "tensordot": lambda t, a: t.tensordot(a.batch, a.other, ([0, 1], [0, 1])),
        "outer": lambda t, a: t.outer(a.line, a.line),
        "baddbmm": lambda t, a: t.baddbmm(a.batch, a.batch, a.other),
        "bmm": lambda t, a: t.bmm(a.batch, a.other),
        "addmm": lambda t, a: t.addmm(a.x, a.x, a.y),
        "addr": lambda t, a: t.addr(a.x, a.line, a.line),
        "mv": lambda t, a: t.mv(a.x, a.line),
        "dot": lambda t, a: t.dot(a.flat, a.x.reshape(-1)),
        "cdist": lambda t, a: t.cdist(a.points, a.points),
        "kron": lambda t, a: t.kron(a.tile, a.tile),
        "inner": lambda t, a: t.inner(a.points, a.points),
    },
}


def check(name, got, wanted):
    """Exits when two results differ by more than float32 arithmetic in another order may."""
    ours, theirs = np.asarray(got), np.asarray(wanted)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        expected = f"{theirs.dtype} {theirs.shape}"
        raise SystemExit(f"{name}: {ours.dtype} {ours.shape}, expected {expected}")
    limit = 1e-3 * max(1.0, float(np.nanmax(np.abs(theirs.astype(np.float64)), initial=0)))
    if not np.allclose(ours, theirs, 1e-3, limit, equal_nan=True):
        raise SystemExit(f"{name}: the results differ")


def fastest(call, seconds):
    """The time of the fastest call, in microseconds."""
    call()
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    best, end = math.inf, clock() + seconds
    while True:
        began = clock()
        call()
        now = clock()
        best = min(best, now - began)
        if now > end:
            return best * 1e6


def measured(call, ours, theirs, rounds, seconds):
    """(weft's best, PyTorch's best, the least and the greatest ratio of a round)."""
    taken = ([], [])
    for _ in range(rounds):
        for library, inputs, times in ((weft.torch, ours, taken[0]), (torch, theirs, taken[1])):
            time.sleep(PAUSE)
            times.append(fastest(lambda: call(library, inputs), seconds))
    ratios = [b / a for a, b in zip(*taken)]
    return *map(min, taken), min(ratios), max(ratios)


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def run_group(group, cases, ours, theirs, options):
    ratios = []
    if not options.json:
        print(f"\n| {group} | weft | PyTorch | ratio | rounds |\n|---|---|---|---|---|", flush=True)
    for name, call in cases.items():
        check(name, call(weft.torch, ours), call(torch, theirs))
        mine, other, least, most = measured(call, ours, theirs, options.rounds, options.seconds)
        ratios.append(other / mine)
        if options.json:
            line = {"bench": "weft_python_functions", "group": group, "case": name}
            line |= {"threads": torch.get_num_threads(), "value": round(mine, 1), "unit": "us"}
            line |= {"torch": round(other, 1), "ratio": round(other / mine, 3)}
            print(json.dumps(line), flush=True)
            continue
        row = f"| {name} | {mine:.0f} | {other:.0f} | {other / mine:.2f} "
        print(row + f"| {least:.2f} to {most:.2f} |", flush=True)
    if ratios and not options.json:
        print(f"| geometric mean | | | {geometric_mean(ratios):.2f} | |", flush=True)
    return ratios


def run(threads, options):
    torch.set_num_threads(threads)
    made = arrays()
    ours = types.SimpleNamespace(**{k: weft.from_numpy(v) for k, v in made.items()})
    theirs = types.SimpleNamespace(**{k: torch.from_numpy(v) for k, v in made.items()})
    ratios = []
    for group, cases in CASES.items():
        chosen = {k: f for k, f in cases.items() if re.search(options.only, f"{group}/{k}")}
        if chosen:
            ratios += run_group(group, chosen, ours, theirs, options)
    if ratios and not options.json:
        mean, least = geometric_mean(ratios), min(ratios)
        print(f"\n{threads} threads: {len(ratios)} cases, mean {mean:.2f}, least {least:.2f}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1,2", help="numbers of threads (1,2)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.02, help="time of a library in a round")
    parser.add_argument("--only", default="", help="regular expression for group/case")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for threads in map(int, options.threads.split(",")):
        weft.run_ranks(1, lambda world: run(threads, options), threads_per_rank=threads)


if __name__ == "__main__":
    main()
