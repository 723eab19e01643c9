#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The total time of a cached call on sharded tensors from Python: fake world, locals of 8x8 f32.

    PYTHONPATH=build/release/python python benchmarks/python_dispatch.py --mesh 2,4

A case is --reps timed loops of --loops calls; the value is their median, in microseconds per call,
and p10 and p90 are the spread. Operands require a gradient where "grad" is true.
"""

import argparse
import json
import statistics
import time

import weft
from weft import Replicate, Shard


def time_us(call, loops, reps):
    for _ in range(loops):
        call()
    took = []
    for _ in range(reps):
        began = time.perf_counter()
        for _ in range(loops):
            call()
        took.append((time.perf_counter() - began) / loops * 1e6)
    took.sort()
    return statistics.median(took), took[len(took) // 10], took[-1 - len(took) // 10]


def cases(mesh, grad):
    """{name: call}, the same cases as torch_dispatch.py."""
    rows, whole = [Shard(0)] * mesh.ndim, [Replicate()] * mesh.ndim
    n = 8 * mesh.size()

    def sharded():
        local = weft.randn((8, 8))
        return weft.from_local(local, mesh, rows, shape=(n, 8)).detach().requires_grad_(grad)

    x, y = sharded(), sharded()
    w = weft.distribute(weft.randn((8, 8)), mesh, whole).detach().requires_grad_(grad)
    full = weft.distribute(weft.randn((n, 8)), mesh, whole).detach().requires_grad_(grad)
    local = weft.randn((8, 8))
    return {
        "detach": lambda: x.detach(),
        "add": lambda: x + y,
        "mul_scalar": lambda: x * 2.0,
        "mm": lambda: weft.matmul(x, w),
        "view": lambda: x.view(n, 2, 4),
        "redistribute_r_to_s0": lambda: full.redistribute(rows),
        "from_local": lambda: weft.from_local(local, mesh, rows, shape=(n, 8)),
        "to_local": lambda: x.to_local(),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mesh", default="8", help="sizes of the axes: 8 or 2,4")
    parser.add_argument("--loops", type=int, default=2000)
    parser.add_argument("--reps", type=int, default=25)
    args = parser.parse_args()
    sizes = [int(size) for size in args.mesh.split(",")]
    ranks = 1
    for size in sizes:
        ranks *= size
    world = weft.fake_world(0, ranks)
    mesh = weft.DeviceMesh(world, {f"axis{i}": size for i, size in enumerate(sizes)})
    for grad in (False, True):
        for name, call in cases(mesh, grad).items():
            before = weft.set_grad_enabled(grad)
            value, low, high = time_us(call, args.loops, args.reps)
            weft.set_grad_enabled(before)
            line = {"bench": "weft_python_dispatch", "case": name, "value": round(value, 3)}
            line |= {"unit": "us", "p10": round(low, 3), "p90": round(high, 3)}
            print(json.dumps(line | {"grad": grad, "mesh": sizes}), flush=True)


if __name__ == "__main__":
    main()
