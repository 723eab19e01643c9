#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of a small Llama driven from Python, with the same engine as bench_train.

    PYTHONPATH=build/release/python python benchmarks/python_train.py --config tiny --ranks 2

Prints one JSON line: tokens/s over all ranks, by the median of --steps steps after --warmup.
"""

import argparse
import json
import statistics
import time

import numpy as np
import weft
from weft import nn, optim


def train(world, args):
    """Seconds of each step, and the losses."""
    mesh = weft.DeviceMesh(world, {"dp": world.size})
    model = nn.TransformerModel(args.config)
    for unit in model.units():
        weft.fully_shard(unit, mesh)
    weft.fully_shard(model, mesh)
    model.materialize()
    optimizer = optim.AdamW(model.parameters(), lr=3e-4)
    rows = [weft.Shard(0)]
    random = np.random.default_rng(0)
    took, losses = [], []
    for _ in range(args.warmup + args.steps):
        text = random.integers(0, 256, (args.batch * world.size, args.seq + 1))
        ids = weft.distribute(weft.from_numpy(text[:, :-1].copy()), mesh, rows)
        targets = weft.distribute(weft.from_numpy(text[:, 1:].copy()), mesh, rows)
        world.barrier()
        began = time.perf_counter()
        loss = model.loss(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        world.barrier()
        took.append(time.perf_counter() - began)
        losses.append(loss.full_tensor().item())
    return took[args.warmup :], losses


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="tiny", choices=["tiny", "small"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="threads of each rank")
    parser.add_argument("--batch", type=int, default=4, help="rows a rank")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    args = parser.parse_args()
    args.seq = 256 if args.config == "tiny" else 512
    results = weft.run_ranks(
        args.ranks, lambda world: train(world, args), threads_per_rank=args.threads
    )
    took, losses = results[0]
    tokens = args.ranks * args.batch * args.seq
    line = {"bench": "weft_python_train", "case": f"{args.config}/python/f32"}
    line |= {"value": round(tokens / statistics.median(took), 1), "unit": "tokens/s"}
    line |= {"ranks": args.ranks, "threads": args.threads, "losses": losses[:2] + losses[-1:]}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
