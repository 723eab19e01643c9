# SPDX-License-Identifier: Apache-2.0
"""The Llama from Python: transformers' numbers, and runs that move between Python and the
program."""

import gc
import json
import os
import pathlib
import shutil
import subprocess
import sys
import weakref

import numpy as np
import pytest
import weft
from weft import nn, optim
from weft.training import LlamaRun

REFERENCE = pathlib.Path(__file__).parent.parent / "reference"
PROGRAM = os.environ["WEFT_PROGRAM"]


def read_safetensors(path):
    """({name: array}, metadata) of a small file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    arrays = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = {"F32": np.float32, "I64": np.int64}[entry["dtype"]]
        bytes_of = data[8 + length + begin : 8 + length + end]
        arrays[name] = np.frombuffer(bytes_of, dtype).reshape(entry["shape"]).copy()
    return arrays, metadata


def far(got, expected):
    return np.abs(got - expected).max() / np.abs(expected).max()


def differences(world, name, axes):
    """max|d| / max|ref| of logits, loss and gradients, and the largest error of the losses."""
    expected, numbers = read_safetensors(REFERENCE / name / "reference.safetensors")
    mesh = weft.DeviceMesh(world, axes)
    model = nn.TransformerModel(weft.transformer_config(str(REFERENCE / name)))
    rows = {"dp": weft.Shard(0)}
    if "tp" in axes:
        weft.parallelize(model, mesh["tp"], weft.transformer_styles(model.config))
    for block in model.blocks():
        weft.fully_shard(block, mesh["dp"])
    weft.fully_shard(model, mesh["dp"])
    weft.load_hugging_face(model, str(REFERENCE / name))
    optimizer = optim.AdamW(
        model.parameters(),
        lr=float(numbers["lr"]),
        betas=(float(numbers["beta1"]), float(numbers["beta2"])),
        eps=float(numbers["eps"]),
        weight_decay=float(numbers["weight_decay"]),
    )

    def batch(step):
        tokens = expected["tokens"][step % len(expected["tokens"])]
        cut = lambda part: weft.distribute(weft.from_numpy(part.copy()), mesh, rows)
        return cut(tokens[:, :-1]), cut(tokens[:, 1:])

    ids, targets = batch(0)
    found = {"logits": far(model(ids).full_tensor().detach().numpy(), expected["logits"])}
    losses = []
    for step in range(len(expected["losses"])):
        ids, targets = batch(step)
        loss = model.loss(ids, targets)
        loss.backward()
        if step == 0:
            for path, parameter in model.named_parameters():
                grad = parameter.grad.full_tensor().numpy()
                found[path] = far(grad, expected[f"grad.{path}"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.full_tensor().item())
    return max(found.items(), key=lambda item: item[1]), np.abs(losses - expected["losses"]).max()


@pytest.mark.parametrize("name", ["heads", "grouped", "grouped_tied"])
@pytest.mark.parametrize("axes", [{"dp": 1}, {"dp": 3}, {"dp": 4}, {"dp": 2, "tp": 2}], ids=str)
def test_numbers_are_those_of_transformers(name, axes):
    ranks = int(np.prod(list(axes.values())))
    for (path, worst), loss in weft.run_ranks(ranks, lambda w: differences(w, name, axes)):
        assert worst <= 1e-5, path
        assert loss <= 1e-4


TEXT = bytes(range(32, 127)) * 60
SEQ, BATCH, SEED = 32, 8, 11


def program(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train_here(world, directory, steps, resume=None):
    """Trains `tiny` a few steps as `weft train` does, except for the order of the text, and
    saves."""
    mesh = weft.DeviceMesh(world, {"dp": world.size})
    model = nn.TransformerModel("tiny")
    for block in model.blocks():
        weft.fully_shard(block, mesh)
    weft.fully_shard(model, mesh)
    model.materialize()
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    run = LlamaRun(model, optimizer, seed=SEED, batch=BATCH, seq=SEQ, tokens=len(TEXT))
    if resume:
        run.load(str(resume), world)
    text = np.frombuffer(TEXT, np.uint8).astype(np.int64)
    losses = []
    for _ in range(steps):
        rows = np.stack([text[i * 7 : i * 7 + SEQ + 1] for i in range(BATCH)])
        cut = lambda part: weft.distribute(weft.from_numpy(part.copy()), mesh, [weft.Shard(0)])
        loss = model.loss(cut(rows[:, :-1]), cut(rows[:, 1:]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.step += 1
        losses.append(loss.full_tensor().item())
    taken = {"continues": resume is not None, "resumed_step": run.step - steps}
    run.save(weft.CheckpointSaver(world, str(directory), **taken))
    weight = model.named_parameters()[0][1].data.full_tensor()
    return run.step, losses, weft.sum_squares(weight).item()


def test_runs_go_on_in_the_program_and_back(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_bytes(TEXT)
    saved = tmp_path / "saved"
    flags = ["--data", tmp_path / "text", "--model", "tiny", "--batch", BATCH, "--seq", SEQ]
    flags += ["--seed", SEED, "--sample", 0, "--save", saved, "--resume", saved]
    here = weft.run_ranks(2, lambda w: train_here(w, saved, 3), seed=SEED)
    assert here[0][0] == 3 and here[0] == here[1]
    out = program("train", *flags, "--ranks", 3, "--steps", 6, "--metrics", tmp_path / "m.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line][-3:] == [4, 5, 6], out
    assert lines[-1]["loss"] < here[0][1][0]
    back = weft.run_ranks(4, lambda w: train_here(w, saved, 2, resume=saved), seed=SEED)
    assert back[0][0] == 8 and back[0] == back[3]
    assert back[0][1][0] < here[0][1][0]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    def other(world):
        model = nn.TransformerModel("tiny")
        model.materialize()
        run = LlamaRun(model, optim.AdamW(model.parameters()), seed=1, batch=2, seq=3, tokens=4)
        run.save(weft.CheckpointSaver(world, str(tmp_path)))
        run = LlamaRun(model, optim.AdamW(model.parameters()), seed=1, batch=9, seq=3, tokens=4)
        with pytest.raises(ValueError, match="batch of the run is 9, expected 2"):
            run.load(str(tmp_path), world)

    weft.run_ranks(1, other)


@pytest.mark.parametrize("digits", ["1000000000000000.0", "1000000000000000", "2e15"])
def test_a_config_in_other_digits_is_equal(digits, tmp_path):
    """Older versions wrote 1e15 as Python does."""
    config = weft.TransformerConfig(dim=8, layers=1, heads=2, kv_heads=1, head_dim=4, ffn=8,
                                    vocabulary=7, rope_theta=1e15)  # fmt: skip

    def body(world):
        model = nn.TransformerModel(config)
        model.materialize()
        run = LlamaRun(model, optim.AdamW(model.parameters()), seed=1, batch=2, seq=3, tokens=4)
        state = run.state.state_dict()
        numbers = dict(state.numbers)
        names = [name for name in numbers if name.startswith("config/config:")]
        names.sort(key=lambda name: int(name.rpartition(":")[2]))
        text = b"".join(numbers.pop(name).to_bytes(8, "little", signed=True) for name in names)
        assert text.count(b"1e+15") == 1
        text = text.replace(b"1e+15", digits.encode()).rstrip(b"\0")
        for at in range(0, len(text), 8):
            part = text[at : at + 8].ljust(8, b"\0")
            numbers[f"config/config:{at // 8}"] = int.from_bytes(part, "little", signed=True)
        state.numbers = numbers
        weft.CheckpointSaver(world, str(tmp_path)).save(1, state)
        if digits == "2e15":
            with pytest.raises(ValueError, match="load: config:.* of the model is "):
                run.load(str(tmp_path), world)
        else:
            run.load(str(tmp_path), world)

    weft.run_ranks(1, body)


def test_the_programs_numbers_come_back_to_the_bit(tmp_path):
    """Weights that the program saved and that are loaded here on another mesh equal its exported
    ones."""
    (tmp_path / "a.txt").write_bytes(TEXT)
    program("train", "--data", tmp_path / "a.txt", "--model", "tiny", "--ranks", 2, "--steps", 2,
            "--batch", 4, "--seq", SEQ, "--sample", 0, "--save", tmp_path / "saved")  # fmt: skip
    checkpoint = weft.list_checkpoints(str(tmp_path / "saved"))[0]
    assert weft.inspect_checkpoint(checkpoint)["verdict"] == "COMPLETE"
    program("ckpt", "export", checkpoint, tmp_path / "hf")
    arrays, _ = read_safetensors(tmp_path / "hf" / "model.safetensors")

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 3})
        model = nn.TransformerModel("tiny")
        weft.fully_shard(model, mesh)
        model.materialize()
        weft.load_hugging_face(model, str(tmp_path / "hf"))
        for name, parameter in model.named_parameters():
            np.testing.assert_array_equal(parameter.data.full_tensor().numpy(), arrays[name])
        return len(arrays)

    assert weft.run_ranks(3, body)[0] > 30


def test_estimate_is_the_programs():
    text = weft.estimate(model="small", mesh="dp=2,tp=2", batch=4, seq=512, machine="h100")
    flags = ["--model", "small", "--mesh", "dp=2,tp=2", "--batch", 4, "--seq", 512]
    assert text == program("estimate", *flags, "--machine", "h100")
    with pytest.raises(ValueError, match="mesh"):
        weft.estimate(mesh="dp")
    # Flags whose value is optional, that can be turned off, and that take several values.
    flags = {"mesh": "dp=2,tp=2", "seq": 512, "machine": "h100"}
    words = ["--mesh", "dp=2,tp=2", "--seq", 512, "--machine", "h100"]
    made = weft.estimate(async_tp=2, json=False, **flags)
    assert made == program("estimate", *words, "--async-tp=2")
    made = weft.estimate(sequence_parallel=False, **flags)
    assert made == program("estimate", *words, "--no-sequence-parallel")
    assert made != weft.estimate(**flags)
    made = weft.estimate(compare=["full_shard", "ddp"], **flags)
    assert made == program("estimate", *words, "--compare", "full_shard,ddp")


def linear_and_state(inputs, outputs):
    model = nn.Linear(inputs, outputs)
    model.materialize()
    state = weft.TrainingState()
    state.add("model", model)
    return model, state


def test_checkpoints_state_what_is_not_finite_and_one_saver_has_a_directory(tmp_path):
    def body(world):
        model, state = linear_and_state(3, 5)
        saver = weft.CheckpointSaver(world, str(tmp_path), lease_seconds=5)
        report = weft.inspect_checkpoint(saver.save(1, state))
        assert (report["non_finite"], report["non_finite_tensor"]) == (0, "")
        with weft.no_grad():
            weft.fill_(model.named_parameters()[0][1].data, float("inf"))
        report = weft.inspect_checkpoint(saver.save(2, state))
        assert (report["verdict"], report["non_finite"]) == ("COMPLETE", 15)
        assert report["non_finite_tensor"] == "model/weight"
        assert weft.newest_complete_checkpoint(str(tmp_path)).find("step-00000001") > 0
        refusing = weft.CheckpointSaver(world, str(tmp_path), refuse_non_finite=True)
        with pytest.raises(RuntimeError, match='tensor "model/weight" at step 3 is not finite'):
            refusing.save(3, state)
        with pytest.raises(RuntimeError, match="the lease of .* was taken over by process"):
            saver.save(4, state)

    weft.run_ranks(1, body)


def test_a_saver_dropped_under_way_ends_and_runs_are_freed(tmp_path):
    def body(world):
        _, state = linear_and_state(64, 64)
        state.add_random()
        saver = weft.CheckpointSaver(world, str(tmp_path))
        path = saver.save_async(1, state)
        saver.wait()
        shutil.rmtree(path)
        saver.save_async(2, state)
        del saver
        return state

    state = weft.run_ranks(1, body, seed=1234)[0]
    assert len(weft.list_checkpoints(str(tmp_path))) == 1
    weft.manual_seed(77)
    assert state.state_dict().numbers["random/seed"] == 77
    model = nn.TransformerModel("tiny")
    model.materialize()
    run = LlamaRun(model, optim.AdamW(model.parameters()), seed=1, batch=2, seq=3, tokens=4)
    freed = weakref.ref(run)
    del run
    gc.collect()
    assert freed() is None


def test_text_is_not_printed_into_files_when_stdout_is_closed(tmp_path):
    script = """
import os, sys, threading, weft
from weft import nn, optim
from weft.training import LlamaRun

def printed():
    while True:
        for descriptor in range(3):
            try:
                os.write(descriptor, b"printed text")
            except OSError:
                pass

def save(world):
    model = nn.TransformerModel("tiny")
    model.materialize()
    run = LlamaRun(model, optim.AdamW(model.parameters()), seed=1, batch=2, seq=3, tokens=4)
    saver = weft.CheckpointSaver(world, sys.argv[1])
    for run.step in range(1, 4):
        run.save(saver)

threading.Thread(target=printed, daemon=True).start()
weft.run_ranks(1, save)
os._exit(0)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "saved")]
    done = subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command], timeout=120, check=False
    )
    assert done.returncode == 0
    assert program("ckpt", "verify", tmp_path / "saved").count("COMPLETE") == 3
