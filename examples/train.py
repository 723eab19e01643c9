# SPDX-License-Identifier: Apache-2.0
"""Trains a small Llama on the bytes of a text, fully sharded, and saves it.

python examples/train.py                               # 4 ranks as threads, on this text
python examples/train.py --text book.txt --steps 500
weft run -n 4 -- python examples/train.py              # as processes; mpirun and torchrun too
"""

import argparse
import time

import numpy as np
import weft
from weft import nn, optim

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("--text", default=__file__)
arguments.add_argument("--steps", type=int, default=60)
arguments.add_argument("--save", help="a directory for the checkpoint")
options = arguments.parse_args()
SEQ, BATCH = 64, 16


def main(world):
    mesh = weft.DeviceMesh(world, {"dp": world.size})
    config = nn.TransformerConfig(dim=96, layers=3, heads=6, kv_heads=3, ffn=256, vocabulary=256)
    model = nn.TransformerModel(config)
    for unit in model.units():
        weft.fully_shard(unit, mesh)
    weft.fully_shard(model, mesh)
    model.materialize()
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = optim.WarmupCosine(peak=3e-3, warmup=10, total=options.steps, floor=3e-4)

    text = np.fromfile(options.text, np.uint8).astype(np.int64)
    random = np.random.default_rng(0)  # equal on all ranks: each keeps its rows of the batch
    began = time.monotonic()
    for step in range(options.steps):
        starts = random.integers(0, len(text) - SEQ, BATCH)
        rows = weft.from_numpy(np.stack([text[i : i + SEQ + 1] for i in starts]))
        batch = weft.distribute(rows, mesh, [weft.Shard(0)])
        optimizer.lr = schedule(step)
        loss = model.loss(batch[:, :-1], batch[:, 1:])
        loss.backward()
        norm = weft.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.full_tensor().item()
        if world.rank == 0 and (step + 1) % 10 == 0:
            speed = (step + 1) * BATCH * SEQ / (time.monotonic() - began)
            print(f"step {step + 1}  loss {value:.4f}  norm {norm:.3f}  {speed:.0f} tokens/s")
    if options.save:
        state = weft.TrainingState()
        state.add("model", model)
        state.add("optimizer", optimizer)
        path = weft.CheckpointSaver(world, options.save).save(options.steps, state)
        if world.rank == 0:
            print(f"saved {path}")


if __name__ == "__main__":
    if weft.launched_ranks() > 1:
        main(weft.connect())
    else:
        weft.run_ranks(4, main)
