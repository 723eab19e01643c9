# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/: their output, alone and as jobs; the tour cell by cell."""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import weft

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from launch import LAUNCHERS, launch

ROOT = pathlib.Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
GROUPED = ROOT / "tests" / "reference" / "grouped"
everywhere = pytest.mark.parametrize("launcher", ["threads", *LAUNCHERS])


def run(name, *arguments, launcher="threads", ranks=2):
    """The output of an example, without the rank prefixes of `weft run`."""
    done = launch(launcher, ranks, [sys.executable, EXAMPLES / name, *arguments])
    assert done.returncode == 0, done.stderr
    return re.sub(r"^\[\d+\] ", "", done.stdout, flags=re.M)


def losses_of(text):
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", text)]


def test_a_half_of_an_mpi_program_solves():
    pytest.importorskip("mpi4py")
    assert run("mpi_halves.py", launcher="mpirun", ranks=4) == "2 of 4 processes, x = [1. 2. 3.]\n"


@everywhere
def test_training_learns_and_saves(tmp_path, launcher):
    out = run("train.py", "--steps", 20, "--save", tmp_path, launcher=launcher, ranks=3)
    losses = losses_of(out)
    assert len(losses) == 2 and losses[1] < losses[0] < np.log(256)
    path = re.search(r"^saved (.*)$", out, re.M)[1]
    assert weft.inspect_checkpoint(path)["verdict"] == "COMPLETE"
    files = list(pathlib.Path(path).glob("*.safetensors"))
    assert len(files) == (4 if launcher == "threads" else 3)


def reference_losses(name):
    return json.loads((ROOT / "tests/reference/examples/losses.json").read_text())[name]


def sft(ranks, *more):
    data = ROOT / "tests/reference/datasets"
    return run(
        "sft_lora.py", "--model", data / "model", "--tokenizer", data, "--data",
        data / "chat.jsonl", "--adapter", ROOT / "tests/reference/examples/adapter", "--ranks",
        ranks, *more,
    )  # fmt: skip


def vit(ranks):
    init = ROOT / "tests/reference/examples/vit.safetensors"
    return run("vit.py", "--init", init, "--ranks", ranks)


@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("example", [sft, vit])
def test_fine_tuning_and_images_have_the_losses_of_pytorch(example, ranks):
    losses = losses_of(example(ranks))
    assert losses == pytest.approx(reference_losses(example.__name__), abs=1e-4)


@pytest.mark.parametrize("example", [sft, vit])
def test_examples_have_the_losses_of_this_pytorch(example):
    for package in ("torch", "peft", "transformers", "tokenizers"):
        pytest.importorskip(package, reason=f"needs {package}, to run the example in PyTorch")
    code = f"import make_examples; print(make_examples.{example.__name__}_losses())"
    folder = ROOT / "tests/reference"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    losses = losses_of(example(2))
    assert losses == pytest.approx(json.loads(done.stdout.splitlines()[-1]), abs=1e-4)


def test_adapters_of_the_example_are_written(tmp_path):
    sft(2, "--steps", 1, "--out", tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert config["r"] == 4 and config["target_modules"] == ["down_proj", "q_proj", "v_proj"]


def test_training_is_a_loop_of_40_lines():
    text = (EXAMPLES / "train.py").read_text()
    body = re.search(r"^def main\(world\):\n(.*?)^(?=\S)", text, re.M | re.S)[1].rstrip()
    assert len(body.splitlines()) <= 40


@everywhere
def test_tensor_parallelism_costs_what_it_says(launcher):
    out = run("tensor_parallel.py", launcher=launcher, ranks=4)
    predicted, received = re.search(r"predicted (\d+) bytes, received (\d+)", out).groups()
    assert predicted == received and int(predicted) > 0
    # 24 rows of 32 floats a block: each rank has half of the rows, and receives the addends of the
    # other.
    assert re.search(r"forward  down, .* over tp, .* 1536 B", out)
    assert "[S(0), S(0); dim 0 by tp, dp]" in out and "rank 3 (dp=1, tp=1)  [72:96, 0:32]" in out
    assert "forward   unshard 0 over dp" in out
    first, last = losses_of(out)
    assert last < first / 10


def test_kmeans_finds_the_centers():
    out = run("kmeans.py")
    assert re.match(r"\d+ steps, inertia \d+\n(center .*, mean .*\n){3}$", out), out


@everywhere
def test_an_op_of_ones_own_is_numpys(launcher):
    out = run("own_op.py", launcher=launcher, ranks=3)
    laid_out = re.findall(r"^(\w+\(\d?\), \w+\(\d?\) -> .*): (\d+) bytes moved$", out, re.M)
    assert laid_out == [
        ("Replicate(), Replicate() -> Replicate()", "0"),
        ("Shard(0), Replicate() -> Shard(0)", "0"),
        ("Replicate(), Shard(0) -> Shard(1)", "0"),
        ("Shard(1), Shard(1) -> Partial('sum')", "0"),
    ]
    off = [float(number) for number in re.findall(r"\de[+-]\d+", out)]
    assert len(off) == 8 and max(off) < 1e-12


def sampled(*arguments, **options):
    out = run("sample_llama.py", GROUPED, *arguments, **options)
    tokens, speed = re.search(r"tokens ([\d ]+)\n([\d.]+) tokens/s", out).groups()
    assert float(speed) > 0
    return [int(token) for token in tokens.split()]


def reference():
    """(token ids, logits) as computed by transformers."""
    data = (GROUPED / "reference.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, parts = json.loads(data[8 : 8 + length]), []
    for name, dtype in [("tokens", np.int64), ("logits", np.float32)]:
        begin, end = header[name]["data_offsets"]
        part = np.frombuffer(data[8 + length + begin : 8 + length + end], dtype)
        parts.append(part.reshape(header[name]["shape"]))
    return parts[0][0], parts[1]


@pytest.mark.parametrize("given", [1, 4])
def test_the_likeliest_token_is_that_of_transformers(given):
    tokens, logits = reference()
    prompt = ",".join(map(str, tokens[1, :given]))
    found = sampled("--prompt", prompt, "--tokens", 1, "--ranks", 3)
    assert found == [logits[1, given - 1].argmax()]


@everywhere
def test_samples_do_not_depend_on_the_ranks(launcher):
    for flags in ([], ["--temperature", 0.8], ["--temperature", 0.8, "--seed", 5]):
        expected = sampled("--ranks", 1, "--tokens", 6, *flags)
        here = sampled("--ranks", 3, "--tokens", 6, *flags, launcher=launcher, ranks=3)
        assert here == expected and len(here) == 6


def test_temperature_draws_and_a_seed_repeats_it():
    drawn = [sampled("--temperature", 1, "--tokens", 8, "--seed", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def cells(name):
    """(title, source, expected output) of each `# %%` block."""
    found = []
    for cell in re.split(r"^(?=# %%)", (EXAMPLES / name).read_text(), flags=re.M)[1:]:
        expected = [line[3:] for line in cell.splitlines() if line.startswith("#|")]
        found.append((cell.splitlines()[0][5:], cell, expected))
    return found


def test_the_tour_prints_what_it_says():
    names = {}
    tour = cells("tour.py")
    assert len(tour) == 15
    for title, source, expected in tour:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(source, title, "exec"), names)
        assert printed.getvalue().splitlines() == expected, title
        assert expected, title


def test_the_tour_runs_as_a_whole():
    expected = [line for _, _, lines in cells("tour.py") for line in lines]
    assert run("tour.py").splitlines() == expected
