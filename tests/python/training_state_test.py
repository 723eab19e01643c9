# SPDX-License-Identifier: Apache-2.0
"""Checks what a TrainingState takes besides modules and optimizers, and what objects print."""

import collections

import pytest
import weft
from weft import nn, optim
from weft.optim import lr_scheduler


def parts(scale=1024.0):
    model = nn.Sequential(nn.Linear(4, 3))
    model.materialize()
    optimizer = optim.AdamW(model, lr=0.1)
    scaler = optim.GradScaler(init_scale=scale, growth_interval=3)
    return model, optimizer, scaler


SCHEDULERS = {
    "steps": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], gamma=0.5),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.5, 2), lr_scheduler.CosineAnnealingLR(o, 8)], [3]
    ),
    "cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.3, total_steps=20),
}


def advance(model, optimizer, scaler, scheduler, steps):
    rates = []
    for _ in range(steps):
        scaler.scale((model(weft.ones((2, 4))) ** 2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        is_plateau = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
        scheduler.step(1.0) if is_plateau else scheduler.step()
        rates.append((optimizer.lr, scaler.get_scale()))
    return rates


def state_of(model, optimizer, scaler, scheduler):
    state = weft.TrainingState()
    state.add("model", model)
    state.add("optimizer", optimizer)
    state.add("scaler", scaler)
    state.add("scheduler", scheduler)
    return state


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scalers_and_schedulers_go_on(tmp_path, name):
    def body(world):
        first = parts()
        scheduler = SCHEDULERS[name](first[1])
        advance(*first, scheduler, 4)
        path = weft.CheckpointSaver(world, str(tmp_path)).save(
            4, state_of(*first, scheduler)
        )
        whole = advance(*first, scheduler, 6)
        second = parts(scale=2.0)
        other = SCHEDULERS[name](second[1])
        weft.load(path, state_of(*second, other))
        return whole, advance(*second, other, 6)

    whole, resumed = weft.run_ranks(1, body)[0]
    assert resumed == whole and len(set(whole)) > 1


class Counted:
    """A part that a user wrote."""

    def __init__(self):
        self.value = {"seen": [], "by": collections.Counter(), "pair": (1, 2), "nothing": None}

    def state_dict(self):
        return self.value

    def load_state_dict(self, value):
        self.value = value


def test_any_object_with_a_state_of_numbers_and_texts(tmp_path):
    def body(world):
        part, state = Counted(), weft.TrainingState()
        part.value = {"seen": [1, 0.1, float("inf"), "ü"], "by": collections.Counter({3: 2}),
                      "pair": (4, 5), "nothing": None}  # fmt: skip
        state.add("part", part)
        path = weft.CheckpointSaver(world, str(tmp_path)).save(1, state)
        other, into = Counted(), weft.TrainingState()
        into.add("part", other)
        weft.load(path, into)
        assert other.value == part.value and isinstance(other.value["by"], collections.Counter)
        assert isinstance(other.value["pair"], tuple)
        into.add("more", Counted())
        with pytest.raises(ValueError, match="part 'more' is missing in the checkpoint"):
            weft.load(path, into)

    weft.run_ranks(1, body)


def test_names_what_is_no_part():
    state = weft.TrainingState()
    with pytest.raises(TypeError, match="part 'x' is .*, expected a module, an optimizer, a tens"):
        state.add("x", object())
    part = Counted()
    part.value["seen"] = [weft.ones(2)]
    with pytest.raises(TypeError, match="part 'x' has .*, expected numbers, texts, lists and dict"):
        state.add("x", part)


def test_objects_print_what_they_hold():
    model, optimizer, scaler = parts()
    state = weft.TrainingState()
    state.add("model", model)
    state.add("optimizer", optimizer)
    assert repr(state) == (
        "training state\n"
        "  model: 2 tensors of 60 bytes, 0 numbers\n"
        "  optimizer: adamw of 2 parameters, 120 bytes of state on this rank"
    )
    assert repr(weft.state_dict(model)) == "StateDict(2 tensors of 60 bytes, 0 numbers)"
    lines = repr(optimizer).splitlines()
    assert lines[0] == "AdamW (" and lines[-1] == ")"
    assert "Parameter Group 0" in lines and "    lr: 0.1" in lines
    assert "    betas: (0.9, 0.999)" in lines and "    parameters: 2 of 15 elements" in lines


def test_modules_print_their_layouts():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        before = repr(model)
        weft.fully_shard(model[0], mesh)
        weft.fully_shard(model, mesh)
        model.materialize()
        return before, repr(model)

    before, after = weft.run_ranks(3, body)[0]
    assert before == (
        "Sequential(\n  (0): Linear(weight: (3, 4), bias: (3,))\n  (1): ReLU()\n)"
    )
    assert after == (
        "Sequential(full_shard over dp=3\n"
        "  (0): Linear(weight: (3, 4) mesh(dp=3)[S(0)], bias: (3,) mesh(dp=3)[S(0)], "
        "full_shard over dp=3)\n"
        "  (1): ReLU()\n)"
    )


def test_adapters_of_a_model_that_is_not_sharded_are_written_once(tmp_path):
    def body(world):
        model = nn.Sequential(nn.Linear(4, 4))
        weft.add_adapters(model, rank=2, targets=["all-linear"])
        model.materialize()
        weft.save_peft(model, str(tmp_path / "out"), world=world)
        options = weft.peft_options(nn.Sequential(nn.Linear(4, 4)), str(tmp_path / "out"))
        assert options["rank"] == 2 and options["targets"] == ["0"]

    weft.run_ranks(3, body)
