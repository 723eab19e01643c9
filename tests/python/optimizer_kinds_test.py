# SPDX-License-Identifier: Apache-2.0
"""Adam, Lion, Muon, 8-bit moments, averages, loss scales, groups and schedules, compared with what
tests/reference/make_optimizers.py had from PyTorch and transformers."""

import json
import math
import pathlib

import numpy as np
import pytest
import weft
from weft import Replicate, Shard, nn, optim

REFERENCE = json.loads(
    (pathlib.Path(__file__).parent.parent / "reference" / "optimizers.json").read_text()
)
SHAPES = {"a": (7, 5), "b": (7, 5), "c": (7, 5), "wide": (3, 10), "tall": (9, 4), "one": (1, 6)}
STEPS = 4
#: Meshes, and how their axes cut the parameters.
LAYOUTS = {
    "one rank": ({"dp": 1}, [Shard(0)]),
    "three ranks": ({"dp": 3}, [Shard(0)]),
    "four ranks": ({"dp": 4}, [Shard(0)]),
    "hsdp": ({"replicas": 2, "dp": 2}, [Replicate(), Shard(0)]),
    "fsdp over rowwise tp": ({"dp": 2, "tp": 2}, [Shard(0), Shard(1)]),
    "fsdp over colwise tp": ({"dp": 2, "tp": 2}, [Shard(0), Shard(0)]),
    "ddp": ({"dp": 2}, [Replicate()]),
}
MUONS = {
    "original": {},
    "match_rms_adamw": {"adjust_lr_fn": "match_rms_adamw", "nesterov": False},
    "spectral_unclamped": {"adjust_lr_fn": "spectral_unclamped", "momentum": 0.8},
}


def _values(seed, shape):
    at = np.arange(math.prod(shape), dtype=np.float64)
    return np.sin(at * 1.7 + seed).reshape(shape).astype(np.float32)


class _Model(nn.Module):
    def __init__(self):
        super().__init__()
        for name, shape in SHAPES.items():
            setattr(self, name, nn.Parameter(weft.zeros(shape)))


def _made(mesh, cuts):
    model = _Model()
    for i, (name, shape) in enumerate(SHAPES.items()):
        value = weft.distribute(weft.from_numpy(_values(i, shape)), mesh, cuts)
        setattr(model, name, nn.Parameter(value))
    return model


def _give_gradients(model, mesh, cuts, step, times=1.0):
    for i, (name, shape) in enumerate(SHAPES.items()):
        whole = weft.from_numpy(_values(100 * step + 10 * i, shape) * np.float32(2 * times))
        getattr(model, name).grad = weft.distribute(whole, mesh, cuts)


def _whole(tensor):
    return (tensor.full_tensor() if tensor.is_sharded else tensor).detach().numpy().copy()


def _after_steps(world, layout, make, times=1.0, after_step=lambda: None):
    axes, cuts = LAYOUTS[layout]
    mesh = weft.DeviceMesh(world, axes)
    model = _made(mesh, cuts)
    optimizer = make(model)
    scale = weft.full((), 1 / times)
    for step in range(STEPS):
        _give_gradients(model, mesh, cuts, step, times)
        optimizer.step(scale)
    return [_whole(parameter).ravel() for parameter in model.parameters()]


def _check(layout, make, expected, bound=1e-5):
    ranks = math.prod(LAYOUTS[layout][0].values())
    for values in weft.run_ranks(ranks, lambda world: _after_steps(world, layout, make, 4.0)):
        for mine, theirs in zip(values, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=bound * np.abs(theirs).max())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_adam_and_lion_step_as_the_reference(layout):
    options = dict(lr=0.03, betas=(0.8, 0.95), weight_decay=0.2)
    _check(layout, lambda model: optim.Adam(model, eps=1e-6, **options), REFERENCE["Adam"])
    _check(layout, lambda model: optim.Lion(model, **options), REFERENCE["Lion"])


@pytest.mark.parametrize("kind", MUONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_muon_steps_as_pytorch(layout, kind):
    options = dict(lr=0.02, weight_decay=0.2, ns_dtype="f32", **MUONS[kind])
    _check(layout, lambda model: optim.Muon(model, **options), REFERENCE["Muon"][kind])


def test_muon_has_pytorchs_options():
    model = nn.Linear(3, 4)
    model.materialize()
    optimizer = optim.Muon(
        [{"params": [model.weight], "ns_coefficients": (3.0, -4.0, 2.0), "adjust_lr_fn": None}],
        lr=0.1,
    )
    group = optimizer.param_groups[0]
    assert group["momentum"] == 0.95 and group["nesterov"] and group["ns_steps"] == 5
    assert optimizer.moments == ["m", "v"] and len(optimizer.state(0)) == 1
    with pytest.raises(ValueError, match='adjust_lr_fn is "other", expected'):
        optim.Muon(model, adjust_lr_fn="other")
    with pytest.raises(ValueError, match=r"muon: parameter bias is \[4\], expected a matrix"):
        optim.Muon(model, is_matrix=lambda name, parameter: True)


def _model_on(world, axes):
    model = nn.Sequential(nn.Linear(6, 70), nn.Linear(70, 3))
    mesh = weft.DeviceMesh(world, axes)
    if "tp" in axes:
        weft.parallelize(model, mesh["tp"], {"0": weft.Colwise(), "1": weft.Rowwise()})
    weft.fully_shard(model, mesh["dp"])
    model.materialize()
    r = np.random.default_rng(0)
    model.load_state_dict(
        {n: r.normal(size=p.shape).astype(np.float32) for n, p in model.named_parameters()}
    )
    return model, mesh


OPTIMIZERS = {
    "Adam": lambda model: optim.Adam(model, weight_decay=0.1),
    "Lion": lambda model: optim.Lion(model),
    "Muon": lambda model: optim.Muon(model, ns_dtype="f32"),
    "AdamW8bit": lambda model: optim.AdamW8bit(model, least_elements=1),
}


def _state_with(model, optimizer, ema):
    state = weft.TrainingState()
    state.add("model", model)
    state.add("optimizer", optimizer)
    state.add("ema", ema)
    return state


def _save(world, directory, kind):
    model, mesh = _model_on(world, {"dp": 2, "tp": 2})
    optimizer, ema = OPTIMIZERS[kind](model), optim.Ema(model, 0.5)
    for step in range(3):
        x = weft.distribute(weft.from_numpy(_values(step, (8, 6))), mesh["dp"], [Shard(0)])
        (model(x) ** 2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update()
    saver = weft.CheckpointSaver(world, directory)
    saver.save(3, _state_with(model, optimizer, ema))
    saver.wait_all()
    return _all_of(model, optimizer, ema)


def _all_of(model, optimizer, ema):
    names = {name: i for i, name in enumerate(optimizer.names)}
    state = {n: [_whole(t) for t in optimizer.state(i)] for n, i in names.items()}
    averages = dict(zip(ema.names, map(_whole, ema.averages)))
    return state, averages, [optimizer.steps(i) for i in names.values()], ema.updates, ema.decay


def _load(world, directory, kind):
    model, _ = _model_on(world, {"dp": 3})
    optimizer, ema = OPTIMIZERS[kind](model), optim.Ema(model)
    weft.load(directory, _state_with(model, optimizer, ema))
    return _all_of(model, optimizer, ema)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_states_of_four_ranks_load_on_three(tmp_path, kind):
    saved = weft.run_ranks(4, lambda world: _save(world, str(tmp_path), kind))[0]
    for loaded in weft.run_ranks(3, lambda world: _load(world, str(tmp_path), kind)):
        assert loaded[2:] == saved[2:]
        for name, moments in saved[0].items():
            for mine, theirs in zip(loaded[0][name], moments, strict=True):
                np.testing.assert_array_equal(mine, theirs)
            np.testing.assert_array_equal(loaded[1][name], saved[1][name])


def _averages(world, layout):
    axes, cuts = LAYOUTS[layout]
    mesh = weft.DeviceMesh(world, axes)
    model = _made(mesh, cuts)
    optimizer, ema = optim.SGD(model, lr=0.1), optim.Ema(model, decay=0.9)
    with pytest.raises(ValueError, match="ema: number of updates is 0, expected at least 1"):
        ema.applied().__enter__()
    for step in range(STEPS):
        _give_gradients(model, mesh, cuts, step)
        optimizer.step()
        ema.update()
    own = [_whole(p) for p in model.parameters()]
    with ema.applied():
        inside = [_whole(p).ravel() for p in model.parameters()]
        with pytest.raises(ValueError, match="ema: parameters are their averages, expected"):
            ema.update()
        with pytest.raises(ValueError, match="ema: parameters are their averages already"):
            ema.applied().__enter__()
    for before, parameter in zip(own, model.parameters()):
        np.testing.assert_array_equal(before, _whole(parameter))
    other = optim.Ema(model)
    weft.load_state_dict(other, weft.state_dict(ema))
    assert other.updates == STEPS and other.decay == 0.9
    np.testing.assert_array_equal(_whole(other.averages[0]), _whole(ema.averages[0]))
    return inside


@pytest.mark.parametrize("layout", LAYOUTS)
def test_averages_are_pytorchs(layout):
    ranks = math.prod(LAYOUTS[layout][0].values())
    for values in weft.run_ranks(ranks, lambda world: _averages(world, layout)):
        for mine, theirs in zip(values, REFERENCE["Ema"], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def test_wrong_averages_are_refused():
    model = nn.Linear(2, 2)
    model.materialize()
    with pytest.raises(ValueError, match="ema: decay is 2, expected a number from 0 to 1"):
        optim.Ema(model, 2.0)
    with pytest.raises(ValueError, match="ema: number of parameters is 0, expected at least 1"):
        optim.Ema([])


def _scaled_loss(weight, step):
    return (weight * (math.inf if step in (4, 5, 9) else 1.0)).sum()


@pytest.mark.parametrize("unscales", [False, True])
def test_losses_are_scaled_as_pytorch_does(unscales):
    model = nn.Linear(2, 1, bias=False)
    model.load_state_dict({"weight": np.ones((1, 2), np.float32)})
    optimizer = optim.SGD(model, lr=0.1)
    scaler = optim.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    for step, (scale, tracker, value) in enumerate(REFERENCE["GradScaler"]):
        optimizer.zero_grad()
        scaler.scale(_scaled_loss(model.weight, step)).backward()
        if unscales:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        state = scaler.state_dict()
        assert (state["scale"], state["_growth_tracker"]) == (scale, tracker)
        assert _whole(model.weight)[0, 0] == pytest.approx(value, abs=1e-6)
    other = optim.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()


def test_a_scaler_of_one_call_does_the_same():
    model = nn.Linear(2, 1, bias=False)
    model.load_state_dict({"weight": np.ones((1, 2), np.float32)})
    optimizer = optim.SGD(model, lr=0.1)
    scaler = optim.LossScaler(init_scale=1024.0, growth_interval=3)
    for step, (scale, _, value) in enumerate(REFERENCE["GradScaler"]):
        optimizer.zero_grad()
        scaler.scale(_scaled_loss(model.weight, step)).backward()
        norm = weft.gradient_norm(model.parameters())
        assert scaler.step(optimizer, norm) == (step not in (4, 5, 9))
        assert scaler.get_scale() == scale
        assert _whole(model.weight)[0, 0] == pytest.approx(value, abs=1e-6)


def test_wrong_uses_of_scalers_are_named():
    model = nn.Linear(2, 1)
    model.materialize()
    optimizer, scaler = optim.SGD(model), optim.GradScaler()
    with pytest.raises(RuntimeError, match="update: no gradients were looked at, expected step"):
        scaler.update()
    scaler.scale(model(weft.ones((1, 2))).sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="unscale_: the gradients of this optimizer are"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="step: this optimizer has had its step, expected up"):
        scaler.step(optimizer)
    with pytest.raises(ValueError, match="'growth_factor' is missing, expected a state of a Gr"):
        scaler.load_state_dict({"scale": 2.0})
    with pytest.raises(ValueError, match="scale, growth and backoff are 0, 2 and 0.5, expected"):
        optim.GradScaler(init_scale=0.0)
    with pytest.raises(ValueError, match="growth interval is 0, expected at least 1"):
        optim.LossScaler(growth_interval=0)
    with pytest.raises(ValueError, match="scale and growth tracker are -1 and 0, expected above"):
        optim.LossScaler()._set(-1.0, 0)
    off = optim.GradScaler(enabled=False)
    assert off.get_scale() == 1 and off.state_dict() == {}


def test_steps_that_are_not_finite_are_skipped_and_counted():
    policy = optim.NonFinitePolicy(stop_after=3)
    norms = [1.0, math.inf, math.nan, 2.0, math.nan, math.nan]
    assert [policy.admits(n) for n in norms] == [True, False, False, True, False, False]
    assert (policy.skipped, policy.in_a_row) == (4, 2)
    with pytest.raises(RuntimeError, match="the norm of the gradients is nan in 3 steps in a row"):
        policy.admits(math.nan)
    never = optim.NonFinitePolicy(0)
    assert not any(never.admits(math.inf) for _ in range(50)) and never.skipped == 50
    with pytest.raises(ValueError, match="stop_after is -1, expected at least 0"):
        optim.NonFinitePolicy(-1)


def _named_model():
    model = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3))
    model.materialize()
    return model


def test_groups_are_made_by_patterns():
    model = _named_model()
    made = optim.groups(model, {r"^0\.": {"lr": 0.5}, "bias": {"weight_decay": 0.0}}, lr=0.1)
    optimizer = optim.AdamW(made, lr=0.2)
    assert optimizer.names == ["0.weight", "1.bias", "2.bias", "1.weight", "2.weight"]
    rows = [(g["lr"], g["weight_decay"], len(g["params"])) for g in optimizer.param_groups]
    assert rows == [(0.5, 0.01, 1), (0.2, 0.0, 2), (0.1, 0.01, 2)]
    with pytest.raises(ValueError, match="pattern 'head' finds no parameter that no other"):
        optim.groups(model, {"head": {}})


def test_no_decay_goes_by_name_and_dims():
    model = _named_model()
    decays = optim.no_decay("^0")
    assert [decays(n, p) for n, p in model.named_parameters()] == [False] * 3 + [True, False]
    assert all(optim.no_decay(vectors=False)(n, p) for n, p in model.named_parameters())
    optim.AdamW(model, decays=decays)
    for kind in (optim.AdamW, optim.SGD, optim.Lion, optim.Muon):
        with pytest.raises(ValueError, match='pattern "wte" finds no parameter, expected one of 5'):
            kind(model, decays=optim.no_decay("wte"))


@pytest.mark.parametrize("number", range(len(REFERENCE["schedules"])))
def test_schedules_have_the_rates_of_the_reference(number):
    name, warmup, options, rates = REFERENCE["schedules"][number]
    schedule = optim.schedule_named(name, 0.02, warmup, 25, **options)
    mine = [schedule(i) for i in range(len(rates))]
    np.testing.assert_allclose(mine, rates, rtol=1e-9, atol=1e-12)
    assert name in optim.schedule_names()


def test_schedules_drive_groups():
    model = _named_model()
    optimizer = optim.SGD(model, lr=0.02)
    scheduler = optim.get_scheduler("linear", optimizer, 5, 25)
    rates = []
    for _ in range(26):
        rates.append(optimizer.lr)
        scheduler.step()
    expected = next(r for n, w, _, r in REFERENCE["schedules"] if n == "linear")
    np.testing.assert_allclose(rates, expected, rtol=1e-9, atol=1e-12)


def test_a_warm_up_may_begin_above_zero():
    schedule = optim.schedule_named("cosine", 3.0, 4, 12, floor=1.0, from_zero=False)
    other = optim.WarmupCosine(3.0, 4, 12, 1.0)
    assert [schedule(i) for i in range(14)] == pytest.approx([other(i) for i in range(14)])


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("step", {}, "schedule: name is \"step\", expected constant, constant_with_warmup"),
        ("linear", {"warmup": 9}, "linear schedule: warmup is 9, expected 0 to 8 steps"),
        ("cosine", {"floor": 5.0}, "cosine schedule: peak and floor are 1 and 5, expected a floor"),
        ("cosine", {"cosine_cycles": 0.0}, "cosine schedule: cycles are 0, expected more than 0"),
        ("cosine_with_restarts", {"restarts": 0}, "restarts are 0, expected at least 1"),
        ("polynomial", {"power": 0.0}, "polynomial schedule: power is 0, expected more than 0"),
        ("inverse_sqrt", {"timescale": -1}, "timescale is -1, expected at least 0"),
        ("wsd", {"decay": 9}, "wsd schedule: decay is 9, expected 0 to 8 steps"),
        ("wsd", {"decay_type": "x"}, "decay type is \"x\", expected linear, cosine or 1-sqrt"),
        ("one_cycle", {"rising": 2.0}, "rising part and total are 2 and 8, expected a part from"),
        ("one_cycle", {"first_divisor": 0.0}, "divisors are 0 and 10000, expected both above 0"),
    ],
)
def test_wrong_schedules_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        optim.schedule_named(name, **{"peak": 1.0, "total": 8, **options})


def test_a_schedule_of_a_negative_step_is_refused():
    for name in optim.schedule_names():
        schedule = optim.schedule_named(name, 1.0, 0, 8)
        with pytest.raises(ValueError, match="step is -1, expected at least 0"):
            schedule(-1)
