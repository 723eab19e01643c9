# SPDX-License-Identifier: Apache-2.0
"""Random models under `fully_shard`: some steps of training against PyTorch on one device.

    python tests/python/random_models.py FIRST END

trains the models of those seeds and prints the ones whose losses or parameters differ. Drawn are
the blocks, and which of them are sharded, the strategy, mesh, schedule, offload, recomputation,
accumulation, optimizer, clipping and batch. A batch may have fewer rows than there are ranks, and
some backwards of a step leave blocks out."""

import random
import sys
from types import SimpleNamespace

import numpy as np
import torch
import weft
import weft.nn

MESHES = ((1,), (2,), (3,), (4,), (6,), (2, 2), (2, 3), (3, 2), (4, 1), (1, 4))
KINDS = ("mlp", "mlp", "norm", "twice", "branch", "frozen", "narrow", "affine")
OFFLOADS = ([], [], [], ["parameters"], ["gradients"], ["parameters", "gradients"], ["activations"])


def drawn_plan(seed):
    pick = random.Random(seed)
    numpy = np.random.default_rng(seed)

    def often(probability):
        return pick.random() < probability

    plan = SimpleNamespace(seed=seed, mesh=pick.choice(MESHES), width=pick.choice((3, 4, 5, 7, 8)))
    plan.vocabulary = pick.choice((5, 7, 11))
    plan.blocks = [
        SimpleNamespace(
            kind=pick.choice(KINDS),
            hidden=pick.choice((1, 2, 3, 5, 9)),
            is_sharded=often(0.7),
            shards_first=often(0.3),
            reshards=often(0.5),
            recomputes=often(0.25),
        )
        for _ in range(pick.randrange(1, 5))
    ]
    plan.is_tied = often(0.3)
    plan.reshards = often(0.5)
    strategies = ["full_shard", "zero2", "zero1", "ddp"] + ["hsdp"] * 3 * (len(plan.mesh) == 2)
    plan.strategy = pick.choice(strategies)
    plan.options = {
        "prefetch": pick.choice((0, 1, 2)),
        "bucket_bytes": pick.choice((1, 64, 200, 26214400)),
        "offload": pick.choice(OFFLOADS),
    }
    plan.shards_columns = often(0.2)
    plan.optimizer = pick.choice(("sgd", "momentum", "adamw", "groups"))
    plan.clip = pick.choice((None, 0.1, 1.0))
    plan.keeps_sums = often(0.5)
    plan.evaluates = often(0.3)
    batch = pick.choice((1, 2, 3, 4, 5, 8, 12))
    backwards = pick.choice((1, 1, 2, 3))
    # Each step's backwards: ids, targets, and whether branches are left out (of the later ones, as
    # PyTorch's optimizers skip parameters that no backward used, and weft's do not).
    plan.steps = [
        [
            (*numpy.integers(0, plan.vocabulary, (2, batch)), k > 0 and often(0.25))
            for k in range(backwards)
        ]
        for _ in range(pick.randrange(1, 4))
    ]
    return plan


def made_model(plan, nn, library):
    """The model, of PyTorch or of weft."""

    class Block(nn.Module):
        def __init__(self, kind, hidden):
            super().__init__()
            self.kind = kind
            if kind in ("norm", "affine"):
                self.n = nn.LayerNorm(plan.width)
            if kind == "norm":
                self.a = nn.Linear(plan.width, plan.width)
            elif kind != "affine":
                self.a = nn.Linear(plan.width, 1 if kind == "narrow" else hidden)
                self.b = nn.Linear(1 if kind == "narrow" else hidden, plan.width)

        def forward(self, x, leaves_out):
            if self.kind == "affine":
                return self.n(x)
            if self.kind == "norm":
                return x + library.tanh(self.a(self.n(x)))
            y = library.tanh(self.a(x))
            if self.kind == "branch" and leaves_out:
                return x + y.sum(-1, keepdim=True)
            x = x + self.b(y)
            return x + self.b(library.tanh(self.a(x))) * 0.5 if self.kind == "twice" else x

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(plan.vocabulary, plan.width)
            for i, block in enumerate(plan.blocks):
                setattr(self, f"block{i}", Block(block.kind, block.hidden))
            if not plan.is_tied:
                self.head = nn.Linear(plan.width, plan.vocabulary, bias=False)

        def forward(self, ids, leaves_out):
            x = self.embedding(ids)
            for i in range(len(plan.blocks)):
                x = getattr(self, f"block{i}")(x, leaves_out)
            if not plan.is_tied:
                return self.head(x)
            weight = self.embedding.weight
            return x @ (weight if library is torch else weight.tensor()).T

    model = Model().double()
    for i, block in enumerate(plan.blocks):
        if block.kind == "frozen":
            for parameter in getattr(model, f"block{i}").a.parameters():
                parameter.requires_grad_(False)
    return model


def made_optimizer(plan, optim, model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    if plan.optimizer == "sgd":
        return optim.SGD(parameters, lr=0.1)
    if plan.optimizer == "momentum":
        return optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
    if plan.optimizer == "adamw":
        return optim.AdamW(parameters, lr=0.01)
    groups = [{"params": parameters[::2], "weight_decay": 0.0}]
    return optim.AdamW([*groups, {"params": parameters[1::2], "lr": 0.02}], lr=0.01)


def trained_by_pytorch(plan):
    """The initial parameters, the losses and the final parameters."""
    torch.manual_seed(plan.seed)
    model = made_model(plan, torch.nn, torch)
    initial = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
    optimizer = made_optimizer(plan, torch.optim, model)
    losses = []
    for step in plan.steps:
        for ids, targets, leaves_out in step:
            logits = model(torch.tensor(ids), leaves_out)
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor(targets)) / len(step)
            loss.backward()
            losses.append(loss.item())
        if plan.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
        optimizer.step()
        optimizer.zero_grad()
    return initial, losses, {name: p.detach().numpy() for name, p in model.named_parameters()}


def shard_model(plan, model, mesh):
    def placement(parameter):
        is_matrix = len(parameter.shape) == 2
        return weft.Shard(1) if is_matrix and sum(parameter.shape) % 2 else None

    options = dict(plan.options)
    if plan.shards_columns:
        options["shard_placement_fn"] = placement

    def shard(module, reshards):
        weft.fully_shard(module, mesh, plan.strategy, reshard_after_forward=reshards, **options)

    for i, block in enumerate(plan.blocks):
        module = getattr(model, f"block{i}")
        if block.recomputes:
            module.set_recompute(True)
        if block.shards_first and hasattr(module, "a"):
            shard(module.a, block.reshards)
        if block.is_sharded:
            shard(module, block.reshards)
    shard(model, plan.reshards)
    model.materialize()


def trained_by_weft(plan, initial, world):
    """The losses and the final parameters."""
    mesh = weft.DeviceMesh(world, dict(zip("ab", plan.mesh)))
    model = made_model(plan, weft.nn, weft)
    shard_model(plan, model, mesh)
    model.load_state_dict({name: weft.from_numpy(value) for name, value in initial.items()})
    optimizer = made_optimizer(plan, weft.optim, model)
    losses = []

    def rows(values):
        return weft.distribute(weft.from_numpy(values), mesh, [weft.Shard(0)] * len(plan.mesh))

    for step in plan.steps:
        for k, (ids, targets, leaves_out) in enumerate(step):
            if plan.keeps_sums:
                model.set_requires_gradient_sync(k + 1 == len(step))
            logits = model(rows(ids), leaves_out)
            loss = weft.nn.functional.cross_entropy(logits, rows(targets)) / len(step)
            loss.backward()
            losses.append(loss.full_tensor().item())
            if plan.evaluates:
                with weft.no_grad():
                    model(rows(ids), leaves_out)
        if plan.clip:
            weft.nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
        optimizer.step()
        optimizer.zero_grad()
    state = model.state_dict()
    return losses, {name: state[name].detach().full_tensor().numpy() for name in initial}


def difference(seed):
    """Returns what differs between PyTorch and weft in the training of that seed, or None."""
    plan = drawn_plan(seed)
    initial, losses, parameters = trained_by_pytorch(plan)
    ranks = int(np.prod(plan.mesh))
    # AdamW divides by roots of gradients that almost cancel, in float64 on both sides.
    tolerance = {"rtol": 2e-4, "atol": 2e-5}
    for given, trained in weft.run_ranks(ranks, lambda w: trained_by_weft(plan, initial, w)):
        if not np.allclose(given, losses, rtol=1e-5, atol=1e-7):
            return f"losses are {given}, expected {losses}; {plan}"
        for name, expected in parameters.items():
            if not np.allclose(trained[name], expected, **tolerance):
                return f"{name} is off by {np.abs(trained[name] - expected).max()}; {plan}"
    return None


if __name__ == "__main__":
    for each in range(int(sys.argv[1]), int(sys.argv[2])):
        if wrong := difference(each):
            print(wrong)
