#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""64 MiB from a mesh of two ranks to another one of two ranks: `weft.MeshMove` on threads, next to
memcpy by two threads and to JAX's `device_put` between the same meshes of CPU devices, in one
process.

    PYTHONPATH=build/release/python python benchmarks/to_mesh.py

The Python needs JAX and NumPy. Each round runs the three one after the other; the figures are those
of the fastest call of all rounds, which other work on the machine delays least. memcpy copies as
many bytes as the receiving ranks get, half of them on each thread. Every result is compared with
NumPy's first. Prints a line of JSON for each case.
"""

import argparse
import json
import os
import threading
import time

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

import weft  # noqa: E402

ROWS = COLUMNS = 4096
CASES = {  # the placement over the mesh that the tensor comes from, and over the other
    "rows to rows": (0, 0), "rows to columns": (0, 1), "rows to whole": (0, None),
    "whole to rows": (None, 0)}


def fastest(call, repeats):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def fastest_of_all(spans):
    """The shortest time from the first begin to the last end, of each thread's (begin, end)s."""
    return min(max(end for _, end in call) - min(begin for begin, _ in call)
               for call in zip(*spans, strict=True))


def memcpy_seconds(count, repeats):
    """The fastest copy of `count` bytes, half of them by each of two threads."""
    given = [np.ones(count // 2, np.uint8) for _ in range(2)]
    taken = [np.zeros_like(part) for part in given]
    barrier, spans = threading.Barrier(2), [[], []]

    def work(i):
        for _ in range(repeats):
            barrier.wait()
            begin = time.perf_counter()
            np.copyto(taken[i], given[i])
            spans[i].append((begin, time.perf_counter()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return fastest_of_all(spans)


def placements(dim):
    return [weft.Replicate() if dim is None else weft.Shard(dim)]


def weft_seconds(values, before, after, repeats):
    """(the fastest run, bytes that all ranks received)"""
    def body(world):
        first = world.rank < 2
        own = world.subgroup([0, 1] if first else [2, 3])
        mesh = weft.DeviceMesh(own, {"a" if first else "b": 2})
        here = weft.DeviceMesh(own, {"a": 2}) if first else None
        there = None if first else mesh
        given = {}
        if first:
            given["x"] = weft.distribute(weft.tensor(values), here, placements(before))
        move = weft.MeshMove(given, there, placements(after), ranks=world)
        moved = move.run(given)
        if not first:
            whole = np.asarray(moved["x"].full_tensor().numpy())
            assert np.array_equal(whole, values)
        spans = []
        for _ in range(repeats):
            world.barrier()
            begin = time.perf_counter()
            move.run(given, {} if first else moved)
            spans.append((begin, time.perf_counter()))
        return spans, move.received_bytes

    results = weft.run_ranks(4, body, threads_per_rank=1)
    spans, counts = zip(*results, strict=True)
    return fastest_of_all(spans), sum(counts)


def jax_seconds(values, before, after, repeats):
    devices = np.array(jax.devices())

    def sharding(some, dim):
        spec = PartitionSpec(*[None] * (dim or 0), "a") if dim is not None else PartitionSpec()
        return NamedSharding(Mesh(some, "a"), spec)

    x = jax.device_put(values, sharding(devices[:2], before)).block_until_ready()
    to = sharding(devices[2:], after)
    assert np.array_equal(np.asarray(jax.device_put(x, to)), values)
    return fastest(lambda: jax.device_put(x, to).block_until_ready(), repeats)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10, help="calls of each in a round")
    options = parser.parse_args()
    values = np.random.default_rng(1).standard_normal((ROWS, COLUMNS), np.float32)
    for name, (before, after) in CASES.items():
        best = {}
        for _ in range(options.rounds):
            seconds, received = weft_seconds(values, before, after, options.repeats)
            found = {"weft": seconds, "memcpy": memcpy_seconds(received, options.repeats),
                     "jax": jax_seconds(values, before, after, options.repeats)}
            best = {key: min(best.get(key, 1e9), value) for key, value in found.items()}
        print(json.dumps({
            "case": name, "mib": received >> 20,
            **{f"{key}_ms": round(value * 1e3, 2) for key, value in best.items()},
            "of_memcpy": round(best["memcpy"] / best["weft"], 2),
            "jax_over_weft": round(best["jax"] / best["weft"], 2)}), flush=True)


if __name__ == "__main__":
    main()
