# SPDX-License-Identifier: Apache-2.0
"""Schedulers against PyTorch's: its numbers in tests/reference/schedules.json, and itself where it
is installed."""

import copy
import json
import math
import pathlib
import warnings

import numpy as np
import pytest
import schedule_programs as programs
import weft
from weft import nn, optim
from weft.optim import lr_scheduler

REFERENCE = pathlib.Path(__file__).parent.parent / "reference" / "schedules.json"
EXPECTED = json.loads(REFERENCE.read_text())["rows"]


def _optimizer(kind="SGD", **options):
    model = nn.Linear(3, 4)
    model.materialize()
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.02}]
    options = options or ({"momentum": 0.9} if kind == "SGD" else {})
    return getattr(optim, kind)(groups, lr=0.1, **options)


def _torch_optimizer(torch, kind):
    weights = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    groups = [{"params": [weights[0]]}, {"params": [weights[1]], "lr": 0.02}]
    options = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(torch.optim, kind)(groups, lr=0.1, **options)


@pytest.mark.parametrize("seed", range(len(EXPECTED)))
def test_rates_are_those_that_pytorch_set(seed):
    rows = programs.rows(programs.program(seed), lr_scheduler, _optimizer)
    np.testing.assert_allclose(rows, EXPECTED[seed], rtol=1e-9, atol=1e-15)


def _comparable(state):
    if isinstance(state, dict):
        hidden = "_get_lr_called_within_step"
        return {key: _comparable(value) for key, value in state.items() if key != hidden}
    return [_comparable(value) for value in state] if isinstance(state, (list, tuple)) else state


def _assert_alike(ours, theirs):
    assert type(ours) is type(theirs) or isinstance(ours, (int, float)), (ours, theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            _assert_alike(ours[key], theirs[key])
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            _assert_alike(one, other)
    elif isinstance(ours, float):
        assert ours == theirs or math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-15)
    else:
        assert ours == theirs


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_rates_and_states_are_pytorchs(first):
    """Also states of PyTorch's schedulers are taken, and given to them, on the way."""
    torch = pytest.importorskip("torch")
    warnings.simplefilter("ignore")
    for seed in range(first, first + 20):
        wanted = programs.program(1000 + seed)
        ours = programs.Run(wanted, lr_scheduler, _optimizer)
        theirs = programs.Run(
            wanted, torch.optim.lr_scheduler, lambda kind: _torch_optimizer(torch, kind)
        )
        for step in range(programs.STEPS):
            message = f"program {1000 + seed}, step {step}: {wanted}"
            np.testing.assert_allclose(
                ours.step(step), theirs.step(step), rtol=1e-9, atol=1e-15, err_msg=message
            )
            mine, others = ours.state(), theirs.state()
            _assert_alike(_comparable(mine[1]), _comparable(others[1]))
            if step == 20:
                ours.resume(others)
            if step == 30:
                for scheduler, state in zip(theirs.schedulers, mine[1]):
                    scheduler.load_state_dict(state)


def test_two_schedulers_on_one_optimizer():
    optimizer = _optimizer()
    both = [
        lr_scheduler.ExponentialLR(optimizer, 0.9),
        lr_scheduler.MultiStepLR(optimizer, [3, 8], 0.1),
    ]
    rates = []
    for _ in range(4):
        for scheduler in both:
            scheduler.step()
        rates.append(optimizer.lr)
    np.testing.assert_allclose(rates, [0.09, 0.081, 0.00729, 0.006561])
    assert both[1].get_last_lr()[0] == optimizer.lr


def test_a_run_goes_on_with_last_epoch():
    whole = _optimizer()
    scheduler = lr_scheduler.StepLR(whole, 3)
    for _ in range(10):
        scheduler.step()
    for kind in ("SGD", "AdamW"):
        parts = [
            {"params": group["params"], "lr": group["lr"] * 1e-3, "initial_lr": group["lr"]}
            for group in _optimizer(kind).param_groups
        ]
        resumed = lr_scheduler.StepLR(getattr(optim, kind)(parts), 3, last_epoch=9)
        assert resumed.last_epoch == 10 and resumed.base_lrs == [0.1, 0.02]
        np.testing.assert_allclose(resumed.get_last_lr(), scheduler.get_last_lr())
    # A state of the optimizer has the first rates.
    other = _optimizer()
    other.load_state_dict(whole.state_dict())
    assert lr_scheduler.ExponentialLR(other, 0.5, last_epoch=3).base_lrs == [0.1, 0.02]
    with pytest.raises(ValueError, match=r"'initial_lr' of param_groups\[0\] is missing"):
        lr_scheduler.StepLR(_optimizer(), 3, last_epoch=9)


def test_one_cycle_sets_the_momentum_that_steps_use():
    optimizer = _optimizer("AdamW")
    lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=2, steps_per_epoch=5, three_phase=True)
    assert [group["betas"] for group in optimizer.param_groups] == [(0.95, 0.999)] * 2
    # Momentum from 0: the velocity is made when it is needed.
    model = nn.Linear(2, 2)
    model.materialize()
    plain = optim.SGD(model, lr=0.1)
    for _ in range(2):
        model(weft.ones((1, 2))).sum().backward()
        plain.step()
        plain.param_groups[0]["momentum"] = 0.5
    assert plain.moments == ["velocity"] and plain.state(0)[0].tolist() == [[2.0, 2.0]] * 2


def test_a_class_of_ones_own_and_copies():
    class Halves(lr_scheduler.LRScheduler):
        def get_lr(self):
            return [group["lr"] / 2 for group in self.optimizer.param_groups]

    optimizer = _optimizer()
    scheduler = Halves(optimizer)
    assert scheduler.get_last_lr() == [0.05, 0.01]
    scheduler.step()
    assert optimizer.lr == 0.025 and scheduler.last_epoch == 1
    sequence = lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.StepLR(optimizer, 2), lr_scheduler.ExponentialLR(optimizer, 0.5)],
        [4],
    )
    state = copy.deepcopy(sequence.state_dict())
    assert [part["last_epoch"] for part in state["_schedulers"]] == [0, -1]


def test_schedulers_of_groups_that_were_added():
    optimizer = _optimizer()
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.5)
    closed = lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
    model = nn.Linear(2, 2)
    model.materialize()
    optimizer.add_param_group({"params": model.parameters(), "lr": 1.0})
    scheduler.step()
    np.testing.assert_allclose(scheduler.get_last_lr(), [0.025, 0.005, 0.5])
    with pytest.raises(ValueError, match="number of rates is 2, expected 3, one for each group"):
        closed.step()
    assert closed.last_epoch == 0


WRONG = {
    "StepLR(o, 3, verbose=True)": r"StepLR: got an unexpected keyword argument 'verbose', "
    r"expected \(optimizer, step_size, gamma=0.1, last_epoch=-1\)",
    "StepLR(o)": "StepLR: missing a required argument: 'step_size', expected",
    "StepLR(3, 2)": "lr_scheduler: optimizer is a int, expected an Optimizer",
    "LambdaLR(o, [abs])": "number of values of lr_lambda is 1, expected 2, one for each group",
    "LambdaLR(o, 3)": "lr_lambda is 3, expected a function of the step",
    "ConstantLR(o, 2)": "factor is 2, expected a number from 0 to 1",
    "LinearLR(o, 0)": "start_factor is 0, expected a number above 0 and at most 1",
    "LinearLR(o, 1, 2)": "end_factor is 2, expected a number from 0 to 1",
    "CosineAnnealingWarmRestarts(o, 0)": "T_0 is 0, expected a whole number of at least 1",
    "CosineAnnealingWarmRestarts(o, 2).step(-1)": "epoch is -1, expected at least 0",
    "CyclicLR(o, 0, 1, mode='x')": "mode is 'x', expected 'triangular', 'triangular2'",
    "CyclicLR(written, 0, 1)": "cycle_momentum is True, expected False for an optimizer that has",
    "OneCycleLR(o, 1)": "total_steps is None, expected a whole number of at least 1; or give",
    "OneCycleLR(o, 1, 9, pct_start=2)": "pct_start is 2, expected a number from 0 to 1",
    "OneCycleLR(o, 1, 9, anneal_strategy='x')": "anneal_strategy is 'x', expected 'cos' or",
    "OneCycleLR(o, 1, 2).step(3)": "step is 3, expected one below 2, the number of steps",
    "SequentialLR(o, [], [])": "number of schedulers of SequentialLR is 0, expected at least 1",
    "SequentialLR(o, [StepLR(o, 2)], [1])": "number of milestones is 1, expected 0",
    "SequentialLR(o, [StepLR(other, 2)], [])": "the optimizer of StepLR in SequentialLR is an? SGD",
    "ChainedScheduler([3])": "a scheduler of ChainedScheduler is 3, expected an LRScheduler whose",
    "ChainedScheduler([ReduceLROnPlateau(o)])": "is a ReduceLROnPlateau, expected an LRScheduler",
    "ReduceLROnPlateau(o, 'x')": "mode is 'x', expected 'min' or 'max'",
    "ReduceLROnPlateau(o, threshold_mode='x')": "threshold_mode is 'x', expected 'rel' or 'abs'",
    "ReduceLROnPlateau(o, factor=1)": "factor is 1, expected a number below 1",
    "ReduceLROnPlateau(o, min_lr=[1])": "number of values of min_lr is 1, expected 2",
    "LRScheduler(o)": "LRScheduler has no get_lr, expected a list of rates",
}


@pytest.mark.parametrize("call", WRONG)
def test_wrong_use_is_told(call):
    names = {**vars(lr_scheduler), "o": _optimizer(), "other": _optimizer()}
    names["written"] = optim.Optimizer(nn.Linear(2, 2), {"lr": 0.1})
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=WRONG[call]):
        eval(call, names)


def test_min_lrs_of_groups_that_were_added():
    optimizer = _optimizer()
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=[0.0, 0.0])
    model = nn.Linear(2, 2)
    optimizer.add_param_group({"params": model.parameters()})
    plateau.step(1.0)
    with pytest.raises(ValueError, match="number of min_lrs is 2, expected 3, one for each group"):
        plateau.step(1.0)
