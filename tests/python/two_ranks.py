# SPDX-License-Identifier: Apache-2.0
"""A job of two processes: `weft run -n 2 -- python two_ranks.py [CASE]`, or mpirun. Each rank
prints a line on success."""

import os
import signal
import sys
import time

import weft
from weft import nn, optim


def train(world, mesh):
    """The losses of a small model that two ranks shard."""
    model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3))
    weft.fully_shard(model, mesh)
    model.materialize()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    x = weft.randn((8, 6), mesh=mesh, placements=[weft.Shard(0)])
    losses = []
    for _ in range(4):
        loss = weft.mean(weft.square(model(x) - 1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.full_tensor().item())
    return losses


def main():
    case = sys.argv[1] if len(sys.argv) > 1 else "train"
    world = weft.connect(deadline=10.0 if case == "late" else 60.0, seed=4)
    assert weft.connect().size == world.size == weft.launched_ranks() == 2
    if case == "raise" and world.rank == 1:
        raise LookupError("rank 1 lost its way")
    if case == "killed" and world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if case == "exit" and world.rank == 1:
        sys.exit(3)
    if case == "late" and world.rank == 1:
        time.sleep(14)
    world.barrier()
    mesh = weft.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    print(f"rank {world.rank}: {train(world, mesh)}", flush=True)


if __name__ == "__main__":
    main()
