# SPDX-License-Identifier: Apache-2.0
"""States of optimizers that move between layouts and PyTorch; names of tied parameters."""

import copy

import numpy as np
import pytest
import weft
from weft import Shard, nn, optim

#: Mesh and strategy of sharded models.
LAYOUTS = {
    "full_shard": ({"dp": 3}, "full_shard"),
    "many ranks": ({"dp": 6}, "full_shard"),
    "zero1": ({"dp": 2}, "zero1"),
    "zero2": ({"dp": 3}, "zero2"),
    "ddp": ({"dp": 2}, "ddp"),
    "hsdp": ({"replicas": 2, "dp": 2}, "hsdp"),
    "tp": ({"tp": 2}, None),
    "fsdp over tp": ({"dp": 2, "tp": 2}, "full_shard"),
}
KINDS = {
    "AdamW": {"weight_decay": 0.1},
    "Adam": {"eps": 1e-4},
    "SGD": {"momentum": 0.9, "nesterov": True},
    "SGD, plain": {},
    "Lamb": {"weight_decay": 0.1},
}


def _model(seed=0):
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    r = np.random.default_rng(seed)
    values = {n: r.normal(size=p.shape).astype(np.float32) for n, p in model.named_parameters()}
    return model, values


def _inputs(step):
    return np.random.default_rng(10 + step).normal(size=(12, 4)).astype(np.float32)


def _sharded(model, world, layout):
    axes, strategy = LAYOUTS[layout]
    mesh = weft.DeviceMesh(world, axes)
    if "tp" in axes:
        weft.parallelize(model, mesh["tp"], {"0": weft.Colwise(), "1": weft.Rowwise()})
    if strategy == "hsdp":
        weft.fully_shard(model, mesh, strategy)
    elif strategy:
        weft.fully_shard(model, mesh["dp"], strategy)
    model.materialize()
    return mesh


def _whole(tensor):
    return (tensor.full_tensor() if tensor.is_sharded else tensor).detach().numpy().copy()


def _values(model):
    return {name: _whole(value) for name, value in model.state_dict().items()}


def _groups(model, kind):
    """Two groups, in another order than the model's."""
    one = {"params": [model[1].weight, model[0].bias], "lr": 0.03}
    return [one, {"params": [model[0].weight, model[1].bias]}]


def _made(kind, model, groups=_groups):
    return getattr(optim, kind.partition(",")[0])(groups(model, kind), lr=0.01, **KINDS[kind])


def _batch(step, mesh):
    x = weft.from_numpy(_inputs(step))
    if mesh is None:
        return x
    cuts = [weft.Replicate() if name == "tp" else Shard(0) for name in mesh.mesh_dim_names]
    return weft.distribute(x, mesh, cuts)


def _backward(model, step, mesh=None):
    (model(_batch(step, mesh)) ** 2).mean().backward()


def _train(model, optimizer, mesh=None, steps=range(3)):
    for step in steps:
        _backward(model, step, mesh)
        optimizer.step()
        optimizer.zero_grad()


def _trained(kind):
    """A model of one device after three steps, its optimizer, and its values three steps on."""
    model, values = _model()
    model.load_state_dict(values)
    optimizer = _made(kind, model)
    _train(model, optimizer)
    middle, state = _values(model), optimizer.state_dict()
    theirs = {"m": "exp_avg", "v": "exp_avg_sq", "velocity": "momentum_buffer"}
    entries = {}
    for i, entry in state["state"].items():
        entries[i] = {theirs.get(n, n): np.copy(v.numpy()) for n, v in entry.items() if n != "step"}
        entries[i]["step"] = np.array(float(entry["step"]), np.float32)
    _train(model, optimizer, steps=range(3, 6))
    return middle, {"state": entries, "param_groups": state["param_groups"]}, _values(model)


def _go_on(world, layout, kind, middle, state):
    model, _ = _model()
    mesh = _sharded(model, world, layout)
    model.load_state_dict(middle)
    optimizer = _made(kind, model)
    optimizer.param_groups[0]["lr"] = 5.0
    optimizer.load_state_dict(state)
    own = [_whole(moment) for i in range(4) for moment in optimizer.state(i)]
    steps = [optimizer.steps(i) for i in range(4)]
    _train(model, optimizer, mesh, steps=range(3, 6))
    return own, steps, _values(model)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_whole_state_goes_on_sharded(layout, kind):
    middle, state, expected = _trained(kind)
    ranks = int(np.prod(list(LAYOUTS[layout][0].values())))
    for own, steps, values in weft.run_ranks(
        ranks, lambda w: _go_on(w, layout, kind, middle, state)
    ):
        moments = [v for e in state["state"].values() for n, v in e.items() if n != "step"]
        for mine, given in zip(own, moments, strict=True):
            np.testing.assert_array_equal(mine, given)
        assert steps == [3] * 4
        for name, value in expected.items():
            np.testing.assert_allclose(values[name], value, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("layout", ["full_shard", "hsdp", "tp", "fsdp over tp"])
@pytest.mark.parametrize("kind", ["AdamW", "Adam", "SGD", "SGD, plain"])
def test_a_state_of_pytorch_goes_on_sharded(layout, kind):
    torch = pytest.importorskip("torch")
    _, values = _model()
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3))
    theirs.load_state_dict({name: torch.tensor(value) for name, value in values.items()})
    name = kind.partition(",")[0]
    optimizer = getattr(torch.optim, name)(_groups(theirs, kind), lr=0.01, **KINDS[kind])

    def train(steps):
        for step in steps:
            (theirs(torch.tensor(_inputs(step))) ** 2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    def now():
        return {name: value.numpy().copy() for name, value in theirs.state_dict().items()}

    train(range(3))
    middle, state = now(), copy.deepcopy(optimizer.state_dict())
    train(range(3, 6))
    expected = now()
    ranks = int(np.prod(list(LAYOUTS[layout][0].values())))
    for _, _, values in weft.run_ranks(ranks, lambda w: _go_on(w, layout, kind, middle, state)):
        for name, value in expected.items():
            np.testing.assert_allclose(values[name], value, rtol=2e-5, atol=2e-6)


def _state_of(model):
    optimizer = _made("SGD", model)
    return optimizer, optimizer.state_dict()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda s: s["state"].update({9: {}}), "parameter 9 is in no group, expected in one"),
        (lambda s: s["state"][0].update(max_exp_avg_sq=1), "'max_exp_avg_sq' of parameter 0 is"),
        (lambda s: s["state"][0].pop("velocity"), "'velocity' of parameter 0 does not exist"),
        (lambda s: s["state"][0].update(velocity=np.ones(2)), "'velocity' of parameter 0 is .*2"),
        (lambda s: s["param_groups"][1].update(maximize=True), "maximize is True, expected False"),
        (lambda s: s["param_groups"][1].update(dampening=0.5), "dampening is 0.5, expected 0 for"),
        (lambda s: s["param_groups"].pop(), r"the groups have \[2\] parameters, expected \[2, 2\]"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, message):
    model, values = _model()
    model.load_state_dict(values)
    _train(model, _made("SGD", model), steps=range(1))
    optimizer, state = _state_of(model)
    state["param_groups"][0]["lr"] = 7.0
    state["state"] = {i: {**entry, "step": 3} for i, entry in state["state"].items()}
    change(state)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state)
    assert optimizer.lr == 0.03 and optimizer.steps(0) == 0


def test_pytorchs_adam_with_decay_is_not_adamw():
    model, values = _model()
    model.load_state_dict(values)
    optimizer = _made("AdamW", model)
    state = optimizer.state_dict()
    state["param_groups"][0]["decoupled_weight_decay"] = False
    with pytest.raises(ValueError, match="decoupled_weight_decay is False, expected True"):
        optimizer.load_state_dict(state)


class _Tied(nn.Module):
    def __init__(self, nn):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.body = nn.Linear(3, 3)
        self.again = self.body
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


TIED = ["embedding.weight", "body.weight", "body.bias", "again.weight", "again.bias", "head.weight"]


def test_state_dicts_list_all_names_of_tied_parameters(tmp_path):
    def rank(world):
        model = _Tied(nn)
        mesh = weft.DeviceMesh(world, [("dp", 2)])
        weft.fully_shard(model, mesh)
        model.materialize()
        state = model.state_dict()
        assert list(state) == TIED
        for one, other in (("head.weight", "embedding.weight"), ("again.bias", "body.bias")):
            np.testing.assert_array_equal(_whole(state[one]), _whole(state[other]))
        with weft.no_grad():
            state["head.weight"].fill_(2.0)
        assert (_values(model)["embedding.weight"] == 2).all()
        other = _Tied(nn)
        weft.fully_shard(other, mesh)
        other.load_state_dict(state)
        for left_out in ("head.weight", "embedding.weight"):
            rest = {n: weft.full(v.shape, 7.0) for n, v in state.items() if n != left_out}
            assert other.load_state_dict(rest).missing == []
            assert (_values(other)["head.weight"] == 7).all()
        saved = weft.TrainingState()
        saved.add("model", other)
        assert len(saved.state_dict().tensors) == 3
        weft.CheckpointSaver(world, str(tmp_path)).save(1, saved)
        world.barrier()
        read = weft.TrainingState()
        read.add("model", model)
        weft.load(str(tmp_path), read)
        assert (_whole(model.state_dict()["again.weight"]) == 7).all()
        names = weft.StateDict({n: v for n, v in model.state_dict().items()})
        weft.CheckpointSaver(world, str(tmp_path / "names")).save(1, names)
        world.barrier()
        weft.load(str(tmp_path / "names"), names)

    weft.run_ranks(2, rank)


def test_names_of_tied_parameters_are_pytorchs():
    torch = pytest.importorskip("torch")
    made = torch.nn.Module()
    made.embedding, made.body = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 3)
    made.again, made.head = made.body, torch.nn.Linear(3, 5, bias=False)
    made.head.weight = made.embedding.weight
    assert list(made.state_dict()) == TIED
    model = _Tied(nn)
    model.load_state_dict(made.state_dict())
    made.load_state_dict({n: torch.tensor(v.numpy()) for n, v in model.state_dict().items()})
