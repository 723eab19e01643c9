# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism under FSDP on a 2-D mesh: Colwise and Rowwise shard each block over `tp`, and
FSDP shards everything over `dp`. Prints the cost of this before it runs, then trains.

python examples/tensor_parallel.py                     # 2 x 2 ranks as threads
weft run -n 4 -- python examples/tensor_parallel.py    # as processes; mpirun and torchrun too
"""

import weft
from weft import nn, optim

WIDTH, HIDDEN, ROWS, STEPS = 32, 96, 24, 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN, std=0.1)
        self.down = nn.Linear(HIDDEN, WIDTH, std=0.1)

    def forward(self, x):
        return x + self.down(weft.gelu(self.up(self.norm(x))))


def tensor_parallel_model(mesh):
    """One collective per block in forward: `up` outputs columns, and `down` their partial sums."""
    model = nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 1, std=0.1))
    return weft.parallelize(model, mesh["tp"], {"*.up": weft.Colwise(), "*.down": weft.Rowwise()})


def mean_square(model, x, y):
    return weft.mean(weft.square(model(x) - y))


def collectives(mesh):
    """The collectives of one step, found on device meta: no memory, no communication."""
    planned = tensor_parallel_model(mesh)
    planned.materialize("meta")
    rows = {"dp": weft.Shard(0)}
    x = weft.zeros((ROWS, WIDTH), device="meta", mesh=mesh, placements=rows)
    y = weft.zeros((ROWS, 1), device="meta", mesh=mesh, placements=rows)
    return weft.explain_model(planned, lambda: mean_square(planned, x, y))


def main(world):
    mesh = weft.DeviceMesh(world, {"dp": 2, "tp": 2})
    planned = collectives(mesh)
    model = tensor_parallel_model(mesh)
    for block in model.children():
        weft.fully_shard(block, mesh["dp"])
    weft.fully_shard(model, mesh["dp"])
    model.materialize()
    weight = model[0].up.weight.data
    predicted = weft.predicted_bytes(model)
    if world.rank == 0:
        print("-- tensor parallelism alone\n" + planned.rstrip())
        print(f"-- up.weight at rest\n{weft.visualize(weight)}")

    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    rows = {"dp": weft.Shard(0)}
    x = weft.randn((ROWS, WIDTH), mesh=mesh, placements=rows)
    y = weft.sin(weft.sum(x, dim=1, keepdim=True))
    for step in range(STEPS):
        loss = mean_square(model, x, y)
        loss.backward()
        if step == 0 and world.rank == 0:
            print("-- FSDP's schedule of a step\n" + weft.explain_schedule(model).rstrip())
            received = weft.measured_bytes(model)["received"]
            print(f"predicted {predicted['received']} bytes, received {received}")
        weft.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.full_tensor().item()
        if world.rank == 0 and step in (0, STEPS - 1):
            print(f"step {step + 1}  loss {value:.4f}")


if __name__ == "__main__":
    weft.run_world(4, main)
