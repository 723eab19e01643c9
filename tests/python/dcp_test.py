# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of PyTorch's DCP: training goes on as in PyTorch, and what is no data is refused."""

import contextlib
import json
import pickle
import shutil
import struct
from math import prod
from pathlib import Path
from random import Random

import pytest
import weft

REFERENCE = Path(__file__).parent.parent / "reference/dcp"


def net():
    return weft.nn.Sequential(
        weft.nn.Linear(5, 7), weft.nn.ReLU(), weft.nn.Linear(7, 3, bias=False)
    )


def trained_on(world, name, axes):
    """The losses of five steps after what make_dcp.py saved."""
    mesh = weft.DeviceMesh(world, axes)
    model = net()
    for part in (model[0], model[2], model):
        weft.fully_shard(part, mesh, strategy="hsdp" if mesh.ndim > 1 else "full_shard")
    model.materialize()
    parameters, state = model.parameters(), weft.TrainingState()
    if name == "hsdp":
        parameters = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.3}]
    optimizer = weft.optim.AdamW(parameters, lr=0.5)
    state.add("model", model)
    state.add("optimizer", optimizer)
    half, numbers = weft.zeros(3, dtype=weft.bfloat16), {}
    if name == "hsdp":
        state.add("half", half)
        for part in ("step", "rate"):
            take = lambda got, part=part: numbers.update({part: got["value"]})  # noqa: E731
            state.add_numbers(part, lambda: {"value": 0}, take)
    weft.load(str(REFERENCE / name), state)
    if name == "hsdp":
        assert half.tolist() == [0, 1, 2]
        assert numbers == {"step": 2, "rate": struct.unpack("<q", struct.pack("<d", 0.5))[0]}
        assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.02]
    x = weft.distribute(weft.arange(10.0).reshape((2, 5)) / 10, mesh, {})
    losses = []
    for _ in range(5):
        # Each rank has the whole batch.
        loss = (model(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.full_tensor().item())
    return losses


@pytest.mark.parametrize("name", ["fsdp", "hsdp"])
@pytest.mark.parametrize("axes", [{"a": 1}, {"a": 3}, {"a": 2, "b": 2}])
def test_training_goes_on_as_in_pytorch(name, axes):
    expected = json.loads((REFERENCE / f"{name}.json").read_text())
    ranks = weft.run_ranks(prod(axes.values()), lambda world: trained_on(world, name, axes))
    for losses in ranks:
        assert losses == pytest.approx(expected, rel=1e-5)


def is_matrix(name, parameter):
    del name
    return parameter.ndim > 1


def adam_on(world, path, optimizer=weft.optim.Adam, decays=is_matrix):
    """The losses of five steps of an optimizer that goes on from a checkpoint, which it saves."""
    mesh = weft.DeviceMesh(world, {"a": world.size})
    model, state = net(), weft.TrainingState()
    for part in (model[0], model[2], model):
        weft.fully_shard(part, mesh)
    model.materialize()
    own = optimizer(model.parameters(), lr=0.5, weight_decay=0.1, decays=decays)
    state.add("model", model)
    state.add("optimizer", own)
    weft.load(str(path), state)
    saved = weft.CheckpointSaver(world, str(path) + "-again").save(1, state)
    x = weft.distribute(weft.arange(10.0).reshape((2, 5)) / 10, mesh, {})
    losses = []
    for _ in range(5):
        loss = (model(x) ** 2).sum()
        loss.backward()
        own.step()
        own.zero_grad()
        losses.append(loss.full_tensor().item())
    return losses, saved


@pytest.mark.parametrize("ranks", [1, 3])
def test_adam_goes_on_with_decay_in_its_gradients(tmp_path, ranks):
    shutil.copytree(REFERENCE / "adam", tmp_path / "adam")
    expected = json.loads((REFERENCE / "adam.json").read_text())
    for losses, _ in weft.run_ranks(ranks, lambda world: adam_on(world, tmp_path / "adam")):
        assert losses == pytest.approx(expected, rel=1e-5)


def test_the_kind_and_the_decay_of_parameters_are_kept(tmp_path):
    shutil.copytree(REFERENCE / "adam", tmp_path / "adam")
    with pytest.raises(ValueError, match="state is of adam, expected adamw, the optimizer's"):
        weft.run_ranks(1, lambda world: adam_on(world, tmp_path / "adam", weft.optim.AdamW))
    # Saved by weft, exported and read again.
    saved = weft.run_ranks(1, lambda world: adam_on(world, tmp_path / "adam"))[0][1]
    with pytest.raises(ValueError, match="state is of adam, expected lamb, the optimizer's"):
        weft.run_ranks(1, lambda world: adam_on(world, saved, weft.optim.Lamb))
    weft.export_dcp(saved, str(tmp_path / "out"))
    again = weft.run_ranks(1, lambda world: adam_on(world, tmp_path / "out"))[0][0]
    assert again == pytest.approx(json.loads((REFERENCE / "adam.json").read_text()), rel=1e-5)
    with pytest.raises(ValueError, match="option \"weight_decay\" of parameter \"0.bias\" is 0"):
        weft.run_ranks(1, lambda world: adam_on(world, tmp_path / "out", decays=None))


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(REFERENCE / "fsdp", tmp_path / "c")
    return tmp_path / "c"


def load(path):
    model, state = net(), weft.TrainingState()
    model.materialize()
    optimizer = weft.optim.AdamW(model.parameters())
    state.add("model", model)
    state.add("optimizer", optimizer)
    weft.load(str(path), state)


def refused(path):
    with pytest.raises(ValueError) as caught:
        load(path)
    return str(caught.value)


class Bomb:
    def __reduce__(self):
        return print, ("ran",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_are_not_run(copy, protocol, capfd):
    (copy / ".metadata").write_bytes(pickle.dumps({"a": Bomb()}, protocol))
    words = refused(copy)
    assert "the global \"" in words and 'print"' in words and "it is not run" in words
    assert "ran" not in capfd.readouterr().out


def test_damage_is_named(copy):
    metadata, item = copy / ".metadata", copy / "__1_0.distcp"
    whole, data = metadata.read_bytes(), item.read_bytes()
    item.write_bytes(data[:-40])
    assert "__1_0.distcp has" in refused(copy)
    item.write_bytes(b"x" * len(data))
    assert "has no end record, expected a zip archive that torch.save wrote" in refused(copy)
    item.unlink()
    assert "__1_0.distcp" in refused(copy)
    item.write_bytes(data)
    metadata.write_bytes(whole.replace(b"__1_0.distcp", b"../_0.distcp"))
    assert 'a file is "../_0.distcp", expected one of the directory' in refused(copy)
    metadata.write_bytes(whole.replace(b"float32", b"float99"))
    assert "the dtype is torch.float99, expected one that weft has" in refused(copy)
    for at in range(0, len(whole), 97):
        metadata.write_bytes(whole[:at])
        assert ".metadata: the pickle has no " in refused(copy), at


def test_damaged_metadata_never_crashes(copy):
    random, metadata = Random(0), copy / ".metadata"
    whole = metadata.read_bytes()
    for _ in range(300):
        bad = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            bad[random.randrange(len(bad))] = random.randrange(256)
        metadata.write_bytes(bytes(bad))
        with contextlib.suppress(ValueError):  # or it changed nothing that is read
            load(copy)


def elements(path):
    """Every tensor and number of a directory, through weft's reader."""
    state = weft.TrainingState()
    model = net()
    model.materialize()
    optimizer = weft.optim.AdamW(model.parameters())
    state.add("model", model)
    state.add("optimizer", optimizer)
    weft.load(str(path), state)
    all_of = state.state_dict()
    return {name: all_of.tensors[name].tolist() for name in all_of.tensors}, dict(all_of.numbers)


def test_what_is_written_is_read_again(tmp_path):
    weft.export_dcp(str(REFERENCE / "fsdp"), str(tmp_path / "again"))
    assert elements(tmp_path / "again") == elements(REFERENCE / "fsdp")
    with pytest.raises(ValueError, match="again has a .metadata already, expected a new directory"):
        weft.export_dcp(str(REFERENCE / "fsdp"), str(tmp_path / "again"))


def test_a_short_pickle_does_not_grow(copy):
    # A global named by a global, twice each time: 2^40 bytes.
    doubled = b"\x80\x04ccollections\nOrderedDict\n" + b"2\x93" * 40 + b"."
    (copy / ".metadata").write_bytes(doubled)
    assert "a global whose name is not of two texts, expected texts" in refused(copy)
    # A long text that names many globals.
    long = b"\x80\x04X\xe9\x03\x00\x00" + b"a" * 1001 + b"\x8c\x01b\x93."
    (copy / ".metadata").write_bytes(long)
    assert "a global whose name has 1002 bytes, expected at most 1000" in refused(copy)


class Written(weft.optim.Optimizer):
    """An optimizer of a user."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1}, moments=["m"])

    def update(self, value, gradient, state, step, options):
        value -= options["lr"] * gradient


def test_other_moments_and_dtypes_are_refused(tmp_path):
    def save(name, optimizer=None, tensor=None):
        state = weft.TrainingState()
        if optimizer:
            state.add("optimizer", optimizer)
        if tensor is not None:
            state.add("x", tensor)

        def body(world):
            return weft.CheckpointSaver(world, str(tmp_path / name)).save(1, state)

        return weft.run_ranks(1, body)[0]

    path = save("f8", tensor=weft.zeros(3).to(weft.float8_e4m3fn))
    with pytest.raises(ValueError, match="a tensor is f8_e4m3, expected a dtype that PyTorch's"):
        weft.export_dcp(path, str(tmp_path / "out"))

    for optimizer in (weft.optim.Lion, weft.optim.Muon, weft.optim.Lamb, Written):
        parameter = weft.nn.Parameter(weft.ones(3, 4))
        own = optimizer([parameter])
        (parameter * parameter).sum().backward()
        own.step()
        path = save(optimizer.__name__, optimizer=own)
        kind = optimizer.__name__.lower()
        words = f'"optimizer" is of {kind}, expected adam, adamw or'
        if optimizer is Written:
            words = '0.m" is a moment without the ones that'
        with pytest.raises(ValueError, match=words):
            weft.export_dcp(path, str(tmp_path / "out"))


def test_pytorch_reads_what_weft_writes(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    for name in ("fsdp", "hsdp", "adam"):
        weft.export_dcp(str(REFERENCE / name), str(tmp_path / name))
        model = torch.nn.Sequential(
            torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3, bias=False)
        )
        parameters = list(model.parameters())
        groups = [{"params": parameters[:1]}, {"params": parameters[1:]}]
        optimizer = torch.optim.AdamW(groups if name == "hsdp" else parameters, lr=0.3)
        if name == "adam":
            groups = [{"params": parameters[::2]}, {"params": parameters[1:2]}]
            optimizer = torch.optim.Adam(groups, lr=0.3)
        state = {
            "model": get_model_state_dict(model),
            "optimizer": get_optimizer_state_dict(model, optimizer),
        }
        dcp.load(state, checkpoint_id=str(tmp_path / name))
        set_model_state_dict(model, state["model"])
        set_optimizer_state_dict(model, optimizer, state["optimizer"])
        losses = []
        for _ in range(5):
            loss = model(torch.arange(10.0).reshape(2, 5) / 10).square().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        expected = json.loads((REFERENCE / f"{name}.json").read_text())
        assert losses == pytest.approx(expected, rel=1e-5)
