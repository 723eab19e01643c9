# SPDX-License-Identifier: Apache-2.0
"""Groups of parameters, optimizers written in Python, learning rates: as PyTorch, where it is."""

import numpy as np
import pytest
import weft
from weft import Shard, nn, optim
from weft.optim import lr_scheduler

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 10 - 0.5
BIAS = np.array([0.5, -1.0, 0.25, 0.0], dtype=np.float32)


def _linear():
    model = nn.Linear(3, 4)
    model.materialize()
    with weft.no_grad():
        model.weight.copy_(weft.from_dlpack(WEIGHT))
        model.bias.copy_(weft.from_dlpack(BIAS))
    return model


def _groups(model):
    return [
        {"params": [model.weight], "weight_decay": 0.1},
        {"params": [model.bias], "lr": 0.01},
    ]


def _inputs(steps=6):
    values = np.random.default_rng(1).normal(size=(steps, 5, 3)).astype(np.float32)
    return list(values)


def _train(model, optimizer, scheduler=None, start=0):
    for x in _inputs()[start:]:
        (model(weft.from_dlpack(x)) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if scheduler:
            scheduler.step()
    return np.from_dlpack(model.weight.detach()), np.from_dlpack(model.bias.detach())


def _torch_train(torch, kind, schedule, **options):
    model = torch.nn.Linear(3, 4)
    model.weight.data, model.bias.data = torch.tensor(WEIGHT), torch.tensor(BIAS)
    optimizer = getattr(torch.optim, kind)(_groups(model), lr=0.02, **options)
    scheduler = schedule(torch.optim.lr_scheduler, optimizer)
    for x in _inputs():
        (model(torch.tensor(x)) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
    return model, optimizer, scheduler


def _cosine(schedulers, optimizer):
    return schedulers.CosineAnnealingLR(optimizer, 20)


def test_nesterov_is_set_as_an_option_of_a_group():
    made, changed = _linear(), _linear()
    optimizer = optim.SGD(changed, lr=0.02, momentum=0.9)
    assert optimizer.param_groups[0]["nesterov"] is False
    optimizer.param_groups[0]["nesterov"] = True
    state = optimizer.state_dict()["param_groups"][0]
    assert state["nesterov"] is True
    expected = _train(made, optim.SGD(made, lr=0.02, momentum=0.9, nesterov=True))
    for ours, theirs in zip(_train(changed, optimizer), expected):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "kind, options",
    [("AdamW", {"weight_decay": 0.0}), ("SGD", {"momentum": 0.9, "nesterov": True})],
)
def test_groups_are_pytorchs(kind, options):
    torch = pytest.importorskip("torch")
    model = _linear()
    optimizer = getattr(optim, kind)(_groups(model), lr=0.02, **options)
    scheduler = _cosine(lr_scheduler, optimizer)
    weight, bias = _train(model, optimizer, scheduler)
    theirs, their_optimizer, their_scheduler = _torch_train(torch, kind, _cosine, **options)
    np.testing.assert_allclose(weight, theirs.weight.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(bias, theirs.bias.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(scheduler.get_last_lr(), their_scheduler.get_last_lr())
    # Goes on from PyTorch's state.
    other = _linear()
    with weft.no_grad():
        other.weight.copy_(model.weight.detach())
        other.bias.copy_(model.bias.detach())
    taken = getattr(optim, kind)(_groups(other), lr=1.0, **options)
    taken.load_state_dict(their_optimizer.state_dict())
    for mine, theirs in zip(_train(other, taken), _train(model, optimizer)):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_numbers_of_groups():
    model = _linear()
    optimizer = optim.AdamW(_groups(model), lr=0.5, betas=(0.8, 0.9))
    first, second = optimizer.param_groups
    assert first["params"] == [model.weight] and second["params"] == [model.bias]
    assert (first["lr"], second["lr"]) == (0.5, 0.01)
    assert first["betas"] == (0.8, 0.9) and first["weight_decay"] == 0.1
    second["betas"] = (0.1, 0.2)
    second["lr"] *= 2
    assert dict(second)["betas"] == (0.1, 0.2) and optimizer.param_groups[1]["lr"] == 0.02
    assert first["betas"] == (0.8, 0.9)
    optimizer.lr = 0.25
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]


def test_state_dict_goes_on():
    whole, parts = _linear(), _linear()
    expected = _train(whole, optim.AdamW(_groups(whole), lr=0.02))
    first = optim.AdamW(_groups(parts), lr=0.02)
    for x in _inputs()[:3]:
        (parts(weft.from_dlpack(x)) ** 2).sum().backward()
        first.step()
        first.zero_grad()
    state = first.state_dict()
    assert state["state"][1]["step"] == 3 and state["param_groups"][1]["params"] == [1]
    second = optim.AdamW(_groups(parts), lr=7.0)
    second.load_state_dict(state)
    for mine, theirs in zip(_train(parts, second, start=3), expected):
        np.testing.assert_array_equal(mine, theirs)


class Momentum(optim.Optimizer):
    """SGD with momentum, in Python."""

    def __init__(self, parameters, lr=0.1, momentum=0.9):
        super().__init__(parameters, {"lr": lr, "momentum": momentum}, moments=["velocity"])

    def update(self, value, gradient, state, step, options):
        (velocity,) = state
        velocity.mul_(options["momentum"]).add_(gradient)
        value.sub_(velocity, alpha=options["lr"])


def test_an_optimizer_in_python_is_the_built_in_one():
    mine, theirs = _linear(), _linear()
    groups = [{"params": [mine.weight]}, {"params": [mine.bias], "lr": 0.01, "momentum": 0.5}]
    optimizer = Momentum(groups, lr=0.02)
    both = zip(
        _train(mine, optimizer),
        _train(
            theirs,
            optim.SGD(
                [
                    {"params": [theirs.weight]},
                    {"params": [theirs.bias], "lr": 0.01, "momentum": 0.5},
                ],
                lr=0.02,
                momentum=0.9,
            ),
        ),
    )
    for written, built_in in both:
        np.testing.assert_allclose(written, built_in, atol=1e-6)
    assert weft.state_dict(optimizer).tensors and optimizer.moments == ["velocity"]


def test_an_optimizer_in_python_on_sharded_parameters():
    expected = _linear()
    _train(expected, Momentum(expected, lr=0.02))

    def rank(world):
        mesh = weft.DeviceMesh(world, [("dp", 3)])
        model = _linear()
        weft.fully_shard(model, mesh)
        optimizer = Momentum(model, lr=0.02)
        for x in _inputs():
            (model(weft.distribute(weft.from_dlpack(x), mesh, [Shard(0)])) ** 2).sum().backward()
            optimizer.step(weft.ones(()))
            optimizer.zero_grad()
        return np.from_dlpack(model.weight.data.full_tensor().detach())

    for weight in weft.run_ranks(3, rank):
        np.testing.assert_allclose(weight, np.from_dlpack(expected.weight.detach()), atol=1e-5)


#: The rates that PyTorch 2.12 sets over 12 steps from 0.05.
SCHEDULES = {
    "StepLR": (lambda s, o: s.StepLR(o, 3), [0.05, 0.05, 0.05, 0.005]),
    "MultiStepLR": (lambda s, o: s.MultiStepLR(o, [2, 5]), [0.05, 0.05, 0.005]),
    "ConstantLR": (lambda s, o: s.ConstantLR(o, 0.5, 2), [0.025, 0.025, 0.05]),
    "LinearLR": (lambda s, o: s.LinearLR(o, 0.1, 1, 6), [0.005, 0.0125, 0.02]),
    "ExponentialLR": (lambda s, o: s.ExponentialLR(o, 0.9), [0.05, 0.045, 0.0405]),
    "PolynomialLR": (lambda s, o: s.PolynomialLR(o, 7, 2.0), [0.05, 0.05 * 36 / 49]),
    "CosineAnnealingLR": (lambda s, o: s.CosineAnnealingLR(o, 12, 0.01), [0.05, 0.0493185165]),
    "CosineAnnealingWarmRestarts": (
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2),
        [0.05, 0.0375, 0.0125, 0.05],
    ),
    "OneCycleLR": (lambda s, o: s.OneCycleLR(o, 0.1, 20), [0.004, 0.0131671843]),
    "OneCycleLR, linear": (
        lambda s, o: s.OneCycleLR(o, 0.1, 20, anneal_strategy="linear"),
        [0.004, 0.0232],
    ),
    "LambdaLR": (lambda s, o: s.LambdaLR(o, lambda n: 1 / (1 + n)), [0.05, 0.025]),
    "SequentialLR": (
        lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1, 4), s.CosineAnnealingLR(o, 8)], [4]),
        [0.005, 0.01625, 0.0275, 0.03875, 0.05, 0.0480969883],
    ),
}


def _rates(scheduler, optimizer):
    rates = [optimizer.param_groups[0]["lr"]]
    for _ in range(12):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    make, expected = SCHEDULES[name]
    model = _linear()
    optimizer = optim.SGD(model, lr=0.05)
    model(weft.ones((1, 3))).sum().backward()
    scheduler = make(lr_scheduler, optimizer)
    rates = _rates(scheduler, optimizer)
    np.testing.assert_allclose(rates[: len(expected)], expected, rtol=1e-6)
    other = optim.SGD(model, lr=0.05)
    again = make(lr_scheduler, other)
    other.load_state_dict(optimizer.state_dict())
    again.load_state_dict(scheduler.state_dict())
    assert other.lr == optimizer.lr and again.get_last_lr() == scheduler.get_last_lr()


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    make, _ = SCHEDULES[name]
    model = _linear()
    optimizer = optim.SGD(model, lr=0.05)
    model(weft.ones((1, 3))).sum().backward()
    theirs = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.05)
    np.testing.assert_allclose(
        _rates(make(lr_scheduler, optimizer), optimizer),
        _rates(make(torch.optim.lr_scheduler, theirs), theirs),
        rtol=1e-6,
        atol=1e-12,
    )


def test_reduce_on_plateau():
    optimizer = optim.SGD(_linear(), lr=0.05)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, cooldown=1)
    rates = []
    for loss in (3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1):
        scheduler.step(loss)
        rates.append(optimizer.lr)
    np.testing.assert_allclose(rates, [0.05] * 3 + [0.005] * 5 + [0.0005] * 3)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda m: optim.AdamW([{"params": m, "foo": 1}]), "option \"foo\" of group 0 does not"),
        (lambda m: optim.AdamW([{"weights": [m.weight]}]), "group 0 has no \"params\", expected"),
        (lambda m: optim.SGD(m, nesterov=True), "nesterov with momentum 0"),
        (lambda m: optim.SGD([{"params": m}, {"params": m}]), "is given twice"),
        (lambda m: optim.Optimizer(m, {}), 'option "lr" is missing'),
        (lambda m: optim.SGD(m).param_groups[0].update(x=1), "'x' cannot be set"),
        (lambda m: lr_scheduler.LambdaLR(optim.SGD(m), [abs, abs]), "values of lr_lambda is 2,"),
        (
            lambda m: lr_scheduler.OneCycleLR(optim.SGD(m), 0.1, 9, anneal_strategy="x"),
            "expected 'cos' or 'linear'",
        ),
        (
            lambda m: optim.SGD(m).load_state_dict({"state": {}, "param_groups": []}),
            r"the groups have \[\] parameters, expected \[2\]",
        ),
    ],
)
def test_wrong_use_is_told(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(_linear())


def test_an_optimizer_without_update():
    model = _linear()
    model(weft.ones((1, 3))).sum().backward()
    with pytest.raises(ValueError, match="update is missing"):
        optim.Optimizer(model, {"lr": 0.1}).step()
