#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares steps of a pipeline on two ranks with the prediction from one rank's, each rank with one
thread. Rounds are interleaved, and medians are printed.

    PYTHONPATH=build/release/python python benchmarks/pipeline.py [--rounds 5] [--micro 8]
"""

import argparse
import statistics
import time

import weft

SIZES = dict(dim=256, layers=8, heads=4, kv_heads=4, head_dim=64, ffn=768, vocabulary=256)
ROWS, LENGTH = 2, 128


def batches(micro):
    count = weft.arange(ROWS * LENGTH)
    ids = [(count * (7 + m) % 256).reshape((ROWS, LENGTH)) for m in range(micro)]
    return [(x, x) for x in ids]


def timed(world, step):
    step()
    world.barrier()
    begin = time.perf_counter()
    step()
    world.barrier()
    return time.perf_counter() - begin


def whole(world, micro):
    model = weft.TransformerModel(weft.TransformerConfig(**SIZES))
    model.materialize()

    def step():
        for ids, targets in batches(micro):
            (model.loss(ids, targets) / micro).backward()

    return timed(world, step)


def staged(world, program):
    mesh = weft.DeviceMesh(world, {"pp": 2})
    config = weft.TransformerConfig(**SIZES)
    model = weft.pipeline.PipelinedTransformer(mesh, config, program, LENGTH)
    model.materialize()
    micro = program.microbatches
    return timed(world, lambda: model.differentiate(batches(micro), [1 / micro] * micro))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--micro", type=int, default=8)
    given = parser.parse_args()
    programs = [
        weft.pipeline.gpipe(2, given.micro),
        weft.pipeline.one_forward_one_backward(2, given.micro),
        weft.pipeline.interleaved(2, given.micro),
        weft.pipeline.zero_bubble(2, given.micro),
    ]
    one, times = [], {program.name: [] for program in programs}
    for _ in range(given.rounds):
        one += weft.run_ranks(1, lambda w: whole(w, given.micro), threads_per_rank=1)
        for program in programs:
            times[program.name].append(
                max(weft.run_ranks(2, lambda w: staged(w, program), threads_per_rank=1))
            )
    alone = statistics.median(one)
    print(f"one rank: {alone:.3f} s a step of {given.micro} micro-batches")
    for program in programs:
        predicted = alone / 2 / (1 - program.predict().bubble)
        measured = statistics.median(times[program.name])
        print(
            f"{program.name:12} predicted {predicted:.3f} s, measured {measured:.3f} s "
            f"({min(times[program.name]):.3f} to {max(times[program.name]):.3f}): "
            f"{predicted / measured:.2f} of the predicted speed"
        )


if __name__ == "__main__":
    main()
