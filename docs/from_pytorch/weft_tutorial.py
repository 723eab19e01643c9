# SPDX-License-Identifier: Apache-2.0
"""DTensor, then FSDP over tensor parallelism, on four processes of one host:

torchrun --nproc-per-node 4 FILE
"""

import numpy
from weft import (
    ColwiseParallel,
    DTensor,
    Partial,
    Replicate,
    RowwiseParallel,
    Shard,
    clip_grad_norm_,
    distribute_tensor,
    from_numpy,
    fully_shard,
    init_device_mesh,
    nn,
    parallelize_module,
)
from weft.nn import functional as F
from weft.optim import AdamW

random = numpy.random.default_rng(0)
line = init_device_mesh("cpu", (4,), mesh_dim_names=("all",))
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def values(*shape):
    """Equal numbers on every rank."""
    return from_numpy(random.standard_normal(shape, dtype=numpy.float32))


def show(what, tensor):
    if line.get_rank() == 0:
        print(what, numpy.asarray(tensor.detach()))


# Matrices sharded along one dim, and their product: each rank multiplies its part.
a = distribute_tensor(values(6, 5), line, [Shard(0)])
b = distribute_tensor(values(5, 3), line, [Replicate()])
rows = a @ b
assert rows.placements == (Shard(0),)
assert list(rows.to_local().shape) == [[2, 3], [2, 3], [2, 3], [0, 3]][line.get_rank()]
show("rows", rows.full_tensor())

# Sharded along the summed dim: each rank has an addend, and redistribute adds them up.
c = a.redistribute(line, [Shard(1)])
d = b.redistribute(line, [Shard(0)])
addends = c @ d
assert addends.placements == (Partial(),)
show("addends", addends.redistribute(line, [Replicate()]).to_local())

# This uses two axes at once: rows over dp, columns over tp.
e = distribute_tensor(values(4, 8), mesh, [Shard(0), Replicate()])
f = distribute_tensor(values(8, 6), mesh, [Replicate(), Shard(1)])
blocks = (e @ f).relu()
assert blocks.placements == (Shard(0), Shard(1))
assert blocks.device_mesh == mesh and list(blocks.to_local().shape) == [2, 3]
show("blocks", blocks.full_tensor())
show("sum of columns", blocks.sum(dim=0).full_tensor())

# Makes one tensor of the parts that the ranks have computed.
part = from_numpy(numpy.full((2, 2), line.get_rank(), dtype=numpy.float32))
show("from_local", DTensor.from_local(part, line, [Shard(0)]).full_tensor())


class MLP(nn.Module):
    def __init__(self, width, hidden, classes):
        super().__init__()
        self.net1 = nn.Linear(width, hidden)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(hidden, classes)
        self.net1.weight = nn.Parameter(values(hidden, width) / 4)
        self.net1.bias = nn.Parameter(values(hidden) / 4)
        self.net2.weight = nn.Parameter(values(classes, hidden) / 4)
        self.net2.bias = nn.Parameter(values(classes) / 4)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


# Each block is sharded over tp, and the whole model over dp.
model = nn.Sequential(MLP(8, 16, 8), MLP(8, 12, 4))
plan = {"*.net1": ColwiseParallel(), "*.net2": RowwiseParallel()}
parallelize_module(model, mesh["tp"], plan)
for block in model.children():
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)

# Each dp rank has its rows of the batch.
x = distribute_tensor(values(10, 8), mesh, [Shard(0), Replicate()])
y = distribute_tensor(values(10, 4), mesh, [Shard(0), Replicate()])
for step in range(5):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    optimizer.zero_grad()
    show(f"loss {step}", loss.full_tensor())
for name, parameter in model.state_dict().items():
    show(f"norm of {name}", parameter.full_tensor().norm())
