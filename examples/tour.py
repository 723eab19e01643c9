# SPDX-License-Identifier: Apache-2.0
"""A tour of weft in cells, for editors that run `# %%` blocks, or as a whole program:

python examples/tour.py

The lines after `#|` are the output of a cell.
"""

# %% A tensor on one device is an array with the functions of the Python array API.
import tempfile
import textwrap

import numpy as np
import weft
from weft import nn, optim

x = weft.arange(6).reshape(2, 3)
print(x)
print((x * 2 + 1).tolist())
print(np.asarray(x).sum(), weft.from_numpy(np.eye(2)).dtype)
#| Tensor([2, 3], i64, cpu)
#| [[0, 1, 2],
#|  [3, 4, 5]]
#| [[1, 3, 5], [7, 9, 11]]
#| 15 weft.float64


# %% Ranks are threads of this process; each runs the body. Results are listed by rank.
def who(world):
    return f"rank {world.rank} of {world.size}"


print(weft.run_ranks(3, who))
#| ['rank 0 of 3', 'rank 1 of 3', 'rank 2 of 3']


# %% A mesh names the axes of a grid of ranks. A tensor on it has one placement per axis.
def first(body, axes):
    """Returns rank 0's result of body(mesh)."""
    ranks = int(np.prod(list(axes.values())))
    return weft.run_ranks(ranks, lambda world: body(weft.DeviceMesh(world, axes)))[0]


def cut(mesh):
    x = weft.distribute(weft.arange(15).reshape(5, 3), mesh, {"dp": weft.Shard(0)})
    return x.placements, x.to_local().tolist(), weft.visualize(x)


placements, local, picture = first(cut, {"dp": 2, "tp": 2})
print(placements)
print(local)
print(picture)  # notebooks draw it
#| (Shard(0), Replicate())
#| [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
#| Tensor([5, 3], i64, cpu, mesh(dp=2, tp=2)[S(0), R])
#| rank 0 (dp=0, tp=0)  [0:3, 0:3]
#| rank 1 (dp=0, tp=1)  [0:3, 0:3]
#| rank 2 (dp=1, tp=0)  [3:5, 0:3]
#| rank 3 (dp=1, tp=1)  [3:5, 0:3]


# %% Operations understand layouts: the result's follows from the operands', and nothing moves.
def products(mesh):
    lines, before = [], mesh.traffic[0]
    for left, right in [(weft.Shard(0), weft.Replicate()), (weft.Shard(1), weft.Shard(0))]:
        a = weft.distribute(weft.ones((6, 4)), mesh, [left])
        b = weft.distribute(weft.ones((4, 8)), mesh, [right])
        lines.append(f"{left} @ {right} -> {(a @ b).placements[0]}")
    return [*lines, f"{mesh.traffic[0] - before} bytes received"]


print("\n".join(first(products, {"all": 3})))
#| Shard(0) @ Replicate() -> Shard(0)
#| Shard(1) @ Shard(0) -> Partial('sum')
#| 0 bytes received


# %% A Partial is a sum that has not been computed yet. `redistribute` computes it, by a plan that
# can be printed beforehand and is exactly what runs.
def addends(mesh):
    a = weft.distribute(weft.ones((6, 4)), mesh, [weft.Shard(1)])
    b = weft.distribute(weft.ones((4, 8)), mesh, [weft.Shard(0)])
    product = a @ b
    whole = product.redistribute([weft.Replicate()])
    plan = product.explain([weft.Replicate()])
    return plan, product.local()[0, :3].tolist(), whole.local()[0, :3].tolist()


plan, before, after = first(addends, {"all": 4})
print(plan.rstrip())
print(before, after)
#| [6, 8] f32 mesh(all=4)[P(sum)] -> [6, 8] f32 mesh(all=4)[R]
#| exchange over all: P(sum) -> R, 576 B, 2.1 µs
#| received 576 B, predicted 2.1 µs, peak memory 192 B
#| [1.0, 1.0, 1.0] [4.0, 4.0, 4.0]


# %% Implicit communication can be forbidden, when every byte matters.
def surprised(mesh):
    a = weft.distribute(weft.ones((4, 4)), mesh, [weft.Shard(0)])
    b = weft.distribute(weft.ones((4, 4)), mesh, [weft.Shard(1)])
    with weft.traffic("forbid"):
        try:
            return a + b
        except ValueError as error:
            return error


print(textwrap.fill(str(first(surprised, {"all": 2})), 90))
#| add: operands need a redistribution between ranks, expected layouts without one, as the
#| traffic policy demands; redistribute them explicitly


# %% Gradients have the layout of the tensors they belong to.
def gradients(mesh):
    w = weft.distribute(weft.ones((3, 5)), mesh, [weft.Shard(0)]).requires_grad_()
    x = weft.distribute(weft.arange(10.0).reshape(2, 5), mesh, [weft.Replicate()])
    weft.sum(weft.square(x @ w.T)).backward()
    return w.grad.placements, w.grad.full_tensor()[0].tolist()


for line in first(gradients, {"all": 2}):
    print(line)
#| (Shard(0),)
#| [350.0, 440.0, 530.0, 620.0, 710.0]


# %% Random numbers belong to elements, not to ranks: the bits are equal on any mesh.
def drawn(mesh):
    weft.manual_seed(7)
    x = weft.randn((4, 2), mesh=mesh, placements=[weft.Shard(0)])
    return [round(value, 4) for value in x.full_tensor()[3].tolist()]


print(first(drawn, {"all": 1}), first(drawn, {"all": 3}))
#| [1.8115, -0.4912] [1.8115, -0.4912]


# %% A module has no memory until it is sharded. fully_shard splits its parameters over the ranks; a
# block is unsharded only while it computes.
class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 16, std=0.5)
        self.down = nn.Linear(16, 4, std=0.5)

    def forward(self, x):
        return x + self.down(weft.gelu(self.up(x)))


def sharded(mesh):
    model = nn.Sequential(MLP(), MLP())
    for block in model.children():
        weft.fully_shard(block, mesh["dp"])
    weft.fully_shard(model, mesh["dp"])
    model.materialize()
    return model


def weights(mesh):
    model = sharded(mesh)
    return model, model[0].up.weight.data, weft.predicted_bytes(model)["parameters"]


model, weight, held = first(weights, {"dp": 4})
print(model)
print(str(weight).splitlines()[0])  # its elements follow
print(held, "of", 4 * sum(parameter.numel() for parameter in model.parameters()), "bytes")
#| Sequential(full_shard over dp=4
#|   (0): MLP(full_shard over dp=4
#|     (up): Linear(weight: (16, 4) mesh(dp=4)[S(0)], bias: (16,) mesh(dp=4)[S(0)])
#|     (down): Linear(weight: (4, 16) mesh(dp=4)[S(0)], bias: (4,) mesh(dp=4)[S(0)])
#|   )
#|   (1): MLP(full_shard over dp=4
#|     (up): Linear(weight: (16, 4) mesh(dp=4)[S(0)], bias: (16,) mesh(dp=4)[S(0)])
#|     (down): Linear(weight: (4, 16) mesh(dp=4)[S(0)], bias: (4,) mesh(dp=4)[S(0)])
#|   )
#| )
#| Tensor([16, 4], f32, cpu, mesh(dp=4)[S(0)])
#| 296 of 1184 bytes


# %% Training on 4 ranks equals training on 1, except for rounding.
def losses(mesh, steps=4):
    weft.manual_seed(0)
    model = sharded(mesh)
    optimizer = optim.AdamW(model.parameters(), lr=0.02)
    x = weft.randn((10, 4), mesh=mesh, placements={"dp": weft.Shard(0)})
    found = []
    for _ in range(steps):
        loss = weft.mean(weft.square(model(x) - 1))
        loss.backward()
        weft.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found.append(f"{loss.full_tensor().item():.4f}")
    return found


print(first(losses, {"dp": 1}))
print(first(losses, {"dp": 4}))
#| ['12.2540', '7.6924', '4.7036', '2.8765']
#| ['12.2540', '7.6924', '4.7036', '2.8765']


# %% The schedule of a step is recorded once, printed and costed; later steps run it.
def schedule(mesh):
    model = sharded(mesh)
    x = weft.randn((10, 4), mesh=mesh, placements={"dp": weft.Shard(0)})
    weft.mean(model(x)).backward()
    predicted, measured = weft.predicted_bytes(model), weft.measured_bytes(model)
    return weft.explain_schedule(model), predicted["received"], measured["received"]


text, predicted, measured = first(schedule, {"dp": 2})
print("\n".join(line for line in text.splitlines() if line.startswith("forward")))
print(f"a step receives {predicted} bytes by arithmetic, {measured} by counting")
#| forward   unshard 0 over dp, buffer 0, 296 bytes
#| forward   compute the root
#| forward   wait 0, buffer 0
#| forward   unshard 1 over dp, buffer 1, 296 bytes
#| forward   compute 0
#| forward   reshard 0, buffer 0
#| forward   wait 1, buffer 1
#| forward   compute 1
#| forward   reshard 1, buffer 1
#| a step receives 1776 bytes by arithmetic, 1776 by counting


# %% A tensor-parallel plan maps module paths to styles, under the same sharding.
def cut_twice(mesh):
    model = nn.Sequential(MLP(), MLP())
    plan = {"*.up": weft.Colwise(), "*.down": weft.Rowwise()}
    weft.parallelize(model, mesh["tp"], plan)
    weft.fully_shard(model, mesh["dp"])
    model.materialize()
    return model[0].up.weight.data, model[0].down.weight.data


for weight in first(cut_twice, {"dp": 2, "tp": 2}):
    print(str(weight).splitlines()[0])
#| Tensor([16, 4], f32, cpu, mesh(dp=2, tp=2)[S(0), S(0); dim 0 by tp, dp])
#| Tensor([4, 16], f32, cpu, mesh(dp=2, tp=2)[S(0), S(1)])


# %% A checkpoint is written without communication, one file per rank, and loads onto any mesh.
def saved(mesh, directory):
    weft.manual_seed(3)
    state = weft.TrainingState()
    model = sharded(mesh)
    state.add("model", model)
    path = weft.CheckpointSaver(mesh.communicator(), directory).save(100, state)
    return path, float(weft.sum_squares(model[1].up.weight.data).full_tensor())


def loaded(mesh, path):
    weft.manual_seed(4)
    state = weft.TrainingState()
    model = sharded(mesh)
    state.add("model", model)
    weft.load(path, state)
    return float(weft.sum_squares(model[1].up.weight.data).full_tensor())


with tempfile.TemporaryDirectory() as directory:
    path, written = first(lambda mesh: saved(mesh, directory), {"dp": 4})
    print(weft.inspect_checkpoint(path)["verdict"])
    read = first(lambda mesh: loaded(mesh, path), {"dp": 3})
    print(abs(read - written) < 1e-5)
#| COMPLETE
#| True


# %% A fake world shows what one of 512 ranks holds and receives for a Llama of 8 billion.
def planned():
    world = weft.fake_world(rank=0, size=512)
    mesh = weft.DeviceMesh(world, {"replicate": 64, "shard": 8})
    config = nn.TransformerConfig(
        dim=4096, layers=32, heads=32, kv_heads=8, ffn=14336, vocabulary=128256
    )
    model = nn.TransformerModel(config)
    for unit in model.units():
        weft.fully_shard(unit, mesh, strategy="hsdp")
    weft.fully_shard(model, mesh, strategy="hsdp")
    return weft.predicted_bytes(model)


for name, value in planned().items():
    print(f"{name:12}", value)
#| parameters   4015130624
#| gradients    4015130624
#| buffers      7692517376
#| received     92222926336
#| by_axes      {'shard': 84317743104, 'replicate': 7905183232}
#| copied       0


# %% When a rank fails, the others end too, and its exception is raised here.
def fails(world):
    if world.rank == 1:
        raise LookupError("no such batch")
    world.barrier()


try:
    weft.run_ranks(3, fails)
except LookupError as error:
    print(error, *error.__notes__)
#| no such batch raised by rank 1 of 3
