# SPDX-License-Identifier: Apache-2.0
"""States of optimizers that move: between groups, layouts, checkpoints and PyTorch; groups that are
added; norms of gradients of any order; names of tied parameters."""

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
    "Adam, decay": {"weight_decay": 0.1},
    "Lion": {"weight_decay": 0.1},
    "Muon": {"ns_dtype": "f32", "ns_steps": 3},
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
@pytest.mark.parametrize("kind", ["AdamW", "Adam", "Adam, decay", "SGD", "SGD, plain"])
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


@pytest.mark.parametrize("is_of_strings", [True, False])
def test_a_state_by_names_is_matched_by_names(is_of_strings):
    """The state is that of torch.distributed.checkpoint, or of PyTorch with "param_names"."""
    model, _ = _model()
    model.materialize()
    own = dict(model.named_parameters())
    parts = (("1.weight", "0.bias"), ("0.weight", "1.bias"))
    groups = [{"params": [(name, own[name]) for name in part]} for part in parts]
    optimizer = _made("SGD", model, lambda model, _: groups)
    state, names = optimizer.state_dict(), optimizer.names
    turned = {"state": {}, "param_groups": []}
    for group in state["param_groups"]:
        numbers = group["params"][::-1]
        own = [names[number] for number in numbers]
        keys = own if is_of_strings else numbers
        turned["param_groups"].append({**group, "params": keys})
        if not is_of_strings:
            turned["param_groups"][-1]["param_names"] = own
        for key, number in zip(keys, numbers):
            entry = {"step": 3, "velocity": np.full(optimizer.state(number)[0].shape, number)}
            turned["state"][key] = entry
    optimizer.load_state_dict(turned)
    for number in range(4):
        assert (optimizer.state(number)[0].numpy() == number).all()
    turned["param_groups"][1]["param_names"] = ["a", "b"]
    message = "names of group 1 are 'a', 'b', expected '0.weight', '1.bias', in any order"
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(turned)


def test_pytorchs_adam_with_decay_is_not_adamw():
    model, values = _model()
    model.load_state_dict(values)
    optimizer = _made("AdamW", model)
    state = optimizer.state_dict()
    state["param_groups"][0]["decoupled_weight_decay"] = False
    with pytest.raises(ValueError, match="decoupled_weight_decay is False, expected True"):
        optimizer.load_state_dict(state)


def _halves(model, kind=None):
    return [{"params": [model[0].weight, model[0].bias]}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", [None, "full_shard", "fsdp over tp"])
def test_groups_are_added_between_steps(layout, kind):
    """The groups look as if the second one had no gradients at first."""

    def rank(world):
        results = []
        for adds in (True, False):
            model, values = _model()
            mesh = _sharded(model, world, layout) if layout else None
            model.load_state_dict(values)
            later = {"params": model[1].parameters(), "lr": 0.1}
            groups = _halves(model) + ([] if adds else [later])
            optimizer = _made(kind, model, lambda *_: groups)
            for step in range(4):
                if step == 2 and adds:
                    optimizer.add_param_group(later)
                _backward(model, step, mesh)
                if step < 2:
                    model[1].zero_grad()
                optimizer.step()
                model.zero_grad()
            assert len(optimizer.param_groups) == 2 and optimizer.param_groups[1]["lr"] == 0.1
            results.append((_values(model), [optimizer.steps(i) for i in range(4)]))
        return results

    ranks = int(np.prod(list(LAYOUTS[layout][0].values()))) if layout else 1
    for (added, steps), (given, expected) in weft.run_ranks(ranks, rank):
        assert steps == expected == [4, 4, 2, 2]
        for name in given:
            np.testing.assert_allclose(added[name], given[name], rtol=1e-6, atol=1e-7)


def test_groups_that_are_added_take_what_the_optimizer_was_made_with():
    model, values = _model()
    model.load_state_dict(values)
    optimizer = optim.AdamW(_halves(model), lr=0.5, weight_decay=0.25)
    optimizer.lr = 0.1
    optimizer.add_param_group({"params": model[1].weight, "initial_lr": 0.75})
    group = optimizer.param_groups[1]
    assert (group["lr"], group["weight_decay"], group["initial_lr"]) == (0.5, 0.25, 0.75)
    assert group["params"] == [model[1].weight] and optimizer.names == ["0", "1", "2"]
    for wrong, message in [
        ({"params": [model[0].bias]}, "is given twice, expected once"),
        ({"params": [model[1].bias], "foo": 1}, 'option "foo" of group 2 does not exist'),
        ({"params": [model[1].bias], "lr": -1.0}, "learning rate, eps and weight decay are -1"),
        ({"lr": 1}, 'group 2 has no "params"'),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            optimizer.add_param_group(wrong)
        assert len(optimizer.param_groups) == 2
    plain = optim.SGD(_halves(model), lr=0.1)
    _train(model, plain)
    plain.add_param_group({"params": model[1].parameters(), "momentum": 0.5})
    _train(model, plain)
    assert plain.moments == ["velocity"] and plain.steps(2) == 3


@pytest.mark.parametrize("kind", ["AdamW", "SGD", "Lamb"])
def test_checkpoints_hold_states_by_name(tmp_path, kind):
    """Groups may be made anew, in another order and another number."""
    model, values = _model()
    model.load_state_dict(values)
    optimizer = _made(kind, model)
    optimizer.param_groups[1]["initial_lr"] = 0.25
    _train(model, optimizer)
    names = ("1.weight", "0.bias", "0.weight", "1.bias")
    moments = dict(zip(names, map(optimizer.state, range(4))))

    def saved(world):
        state = weft.TrainingState()
        state.add("optimizer", optimizer)
        state.add("model", model)
        weft.CheckpointSaver(world, str(tmp_path)).save(1, state)
        return state.state_dict()

    state = weft.run_ranks(1, saved)[0]
    assert "optimizer/1.weight.steps" in state.numbers and "optimizer/0.steps" not in state.numbers

    def in_other_groups(model):
        a, b = model[0], model[1]
        fast = [{"params": [p]} for p in (b.weight, a.bias)]
        return [{"params": [b.bias, a.weight]}, *fast[::-1]]

    def loaded(world, layout):
        model, _ = _model()
        _sharded(model, world, layout)
        other = _made(kind, model, lambda model, _: in_other_groups(model))
        state = weft.TrainingState()
        state.add("optimizer", other)
        state.add("model", model)
        weft.load(str(tmp_path), state)
        rates = [(g["lr"], g.get("initial_lr")) for g in other.param_groups]
        names = ("1.bias", "0.weight", "0.bias", "1.weight")
        own = [[_whole(t) for t in other.state(i)] for i in range(4)]
        return rates, dict(zip(names, own)), [other.steps(i) for i in range(4)]

    for layout in ("full_shard", "fsdp over tp"):
        ranks = int(np.prod(list(LAYOUTS[layout][0].values())))
        for rates, own, steps in weft.run_ranks(ranks, lambda w: loaded(w, layout)):
            assert rates == [(0.01, 0.25), (0.03, None), (0.03, None)] and steps == [3] * 4
            for name, tensors in own.items():
                for mine, theirs in zip(tensors, moments[name], strict=True):
                    np.testing.assert_array_equal(mine, theirs.numpy())


def _loads(tmp_path, made, parts):
    def rank(world):
        state = weft.TrainingState()
        for name, part in parts.items():
            state.add(name, part)
        weft.load(str(tmp_path), state)

    weft.run_ranks(1, rank)


def test_checkpoints_that_number_parameters_and_groups_are_loaded(tmp_path):
    """The keys of version 0.1: parameters without names and groups by number."""
    model, values = _model()
    model.load_state_dict(values)
    optimizer = _made("SGD", model)
    _train(model, optimizer)
    tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
    numbers = {}
    for i in range(4):
        tensors[f"optimizer/{i}.velocity"] = optimizer.state(i)[0]
        numbers[f"optimizer/{i}.steps"] = 3
    for key, rate in (("learning_rate", 0.5), ("learning_rate.1", 0.25)):
        numbers[f"optimizer/{key}"] = int(np.float64(rate).view(np.int64))
    old = weft.StateDict(tensors, numbers)
    weft.run_ranks(1, lambda w: weft.CheckpointSaver(w, str(tmp_path)).save(1, old))
    again, _ = _model()
    again.materialize()
    other = _made("SGD", again)
    _loads(tmp_path, other, {"model": again, "optimizer": other})
    assert [group["lr"] for group in other.param_groups] == [0.5, 0.25]
    for i in range(4):
        assert other.steps(i) == 3
        np.testing.assert_array_equal(other.state(i)[0].numpy(), optimizer.state(i)[0].numpy())


def test_wrong_names_and_groups_are_told(tmp_path):
    model, values = _model()
    model.load_state_dict(values)
    optimizer = _made("AdamW", model)
    _train(model, optimizer, steps=range(1))

    def saved(world):
        state = weft.TrainingState()
        state.add("optimizer", optimizer)
        state.add("model", model)
        weft.CheckpointSaver(world, str(tmp_path)).save(1, state)

    weft.run_ranks(1, saved)
    one_group = optim.AdamW(model)
    message = 'option "lr" of parameter "0.bias" is 0.03, expected 0.01, that of "0.weight" in its'
    with pytest.raises(ValueError, match=message):
        _loads(tmp_path, one_group, {"model": model, "optimizer": one_group})
    assert one_group.lr == 1e-3
    some = optim.AdamW([{"params": [model[1].bias, model[0].weight]}])
    with pytest.raises(ValueError, match=r'holds "optimizer/0.bias.m"'):
        _loads(tmp_path, some, {"model": model, "optimizer": some})
    other = optim.SGD(_groups(model, None), momentum=0.5)
    with pytest.raises(ValueError, match="the state is of adamw, expected sgd, the optimizer's"):
        _loads(tmp_path, other, {"model": model, "optimizer": other})


def test_parameters_of_two_models_with_equal_names(tmp_path):
    models = [_model(seed) for seed in (1, 2)]
    for model, values in models:
        model.load_state_dict(values)
    first, second = models[0][0], models[1][0]
    optimizer = optim.AdamW([{"params": first.parameters()}, {"params": second.parameters()}])
    (first(weft.ones((1, 4))) * second(weft.ones((1, 4)))).sum().backward()
    optimizer.step()
    with pytest.raises(ValueError, match='two parameters of the optimizer are called "0.weight"'):
        weft.state_dict(optimizer)
    state = weft.TrainingState()
    for name, part in {"b": second, "a": first, "optimizer": optimizer}.items():
        state.add(name, part)
    names = state.state_dict().tensors.keys()
    assert {"optimizer/a.0.weight.m", "optimizer/b.0.weight.m"} <= set(names)
    optimizer.load_state_dict(optimizer.state_dict())


ORDERS = [1, 2, 3, 0.5, float("inf"), "inf", np.float32(2)]


def _norm(gradients, order):
    """The norm in float64 of all elements together, as PyTorch's of the tensors' norms."""
    together = np.concatenate([g.ravel() for g in gradients]).astype(np.float64)
    return np.linalg.norm(together, float(order))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_norms_of_any_order_on_all_meshes(layout):
    def rank(world):
        model, values = _model()
        mesh = _sharded(model, world, layout)
        model.load_state_dict(values)
        found = []
        for order in ORDERS:
            model.zero_grad()
            _backward(model, 0, mesh)
            before = [_whole(p.grad) for p in model.parameters()]
            total = weft.nn.utils.get_total_norm([p.grad for p in model.parameters()], order)
            norm = weft.nn.utils.clip_grad_norm_(model.parameters(), 0.5, norm_type=order)
            after = [_whole(p.grad) for p in model.parameters()]
            found.append((order, before, total.item(), norm, after))
        return found

    ranks = int(np.prod(list(LAYOUTS[layout][0].values())))
    results = weft.run_ranks(ranks, rank)
    for found in results:
        for (order, before, total, norm, after), first in zip(found, results[0]):
            expected = _norm(before, order)
            assert norm == first[3] == total
            np.testing.assert_allclose(norm, expected, rtol=1e-6)
            scale = min(1, 0.5 / (expected + 1e-6))
            for was, now in zip(before, after):
                np.testing.assert_allclose(now, was * scale, rtol=2e-6)


def test_norms_are_pytorchs():
    torch = pytest.importorskip("torch")
    shapes = [(3, 4), (5,), (0, 2), ()]
    r = np.random.default_rng(1)
    for order in [*ORDERS[:6], 7.5]:
        for scale in (1e-3, 1.0, 1e14):
            given = [np.asarray(r.normal(size=s) * scale, np.float32) for s in shapes]
            theirs = [torch.zeros(s, requires_grad=True) for s in shapes]
            ours = nn.Module()
            for i, gradient in enumerate(given):
                theirs[i].grad = torch.tensor(gradient)
                ours.declare(f"p{i}", gradient.shape)
            ours.materialize()
            for parameter, gradient in zip(ours.parameters(), given):
                parameter.grad = weft.from_numpy(gradient)
            # PyTorch's sums of powers leave the range of float32.
            leaves = scale == 1e14 and order in (3, 7.5)
            whole = _norm(given, order) if leaves else None
            mine = weft.nn.utils.clip_grad_norm_(ours.parameters(), 0.1, order, foreach=True)
            if leaves:
                np.testing.assert_allclose(mine, whole, rtol=1e-5)
                continue
            # PyTorch cannot take the maximum of an empty gradient.
            some = [one for one in theirs if one.numel()]
            norm = torch.nn.utils.clip_grad_norm_(some, 0.1, order)
            np.testing.assert_allclose(mine, norm.item(), rtol=2e-5)
            for one, other in zip(ours.parameters(), theirs):
                np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=2e-5)


def test_norms_that_are_not_finite_and_wrong_orders():
    model, values = _model()
    model.load_state_dict(values)
    (model(weft.ones((1, 4))) * float("nan")).sum().backward()
    for order in (1, 3, float("inf")):
        assert np.isnan(weft.gradient_norm(model.parameters(), order).item())
        with pytest.raises(RuntimeError, match="clip_grad_norm_: the norm of the gradients is nan"):
            weft.clip_grad_norm_(model.parameters(), 1.0, order, error_if_nonfinite=True)
        with pytest.raises(RuntimeError, match="get_total_norm: the norm of the gradients is nan"):
            nn.utils.get_total_norm([p.grad for p in model.parameters()], order, True)
    for wrong in (0, -1, -float("inf"), float("nan")):
        with pytest.raises(ValueError, match="norm_type is .*, expected one above 0"):
            weft.clip_grad_norm_(model.parameters(), 1.0, norm_type=wrong)
    for name, more in {"clip_grad_norm_": [1.0], "gradient_norm": []}.items():
        message = f"{name}: norm_type is 'x', expected a number or 'inf'"
        with pytest.raises(ValueError, match=message):
            getattr(weft, name)(model.parameters(), *more, norm_type="x")
    with pytest.raises(ValueError, match="get_total_norm: norm_type is 'x', expected a number"):
        nn.utils.get_total_norm(weft.ones(3), "x")
    assert nn.utils.get_total_norm([]).item() == 0
    assert nn.utils.get_total_norm(weft.full((4,), 2.0), 1).item() == 8
    one = model[0].bias
    one.grad = weft.full((5,), 3.0)
    assert nn.utils.clip_grad_norm_(one, 1.0, float("inf")) == 3
    nn.utils.clip_grads_with_norm_([one], 0.5, weft.full((), 1.0))
    np.testing.assert_allclose(one.grad.numpy(), [0.5] * 5, rtol=1e-5)
    nn.utils.clip_grad_value_(one, 0.25, foreach=False)
    assert one.grad.tolist() == [0.25] * 5


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
