# SPDX-License-Identifier: Apache-2.0
"""`weft check-step` against live steps of transformers, with faults planted into them."""

import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from safetensors.torch import save_file  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "reference"), str(ROOT / "examples")]
import check_step_reference  # noqa: E402
import make_check_step  # noqa: E402
import make_families  # noqa: E402

PROGRAM = os.environ.get("WEFT_PROGRAM", "weft")


def checked(folder, batch, against):
    return subprocess.run(
        [PROGRAM, "check-step", folder, "--batch", batch, "--against", against],
        capture_output=True, text=True)


@pytest.mark.parametrize("fault", [None, *make_check_step.FAULTS])
def test_planted_faults_are_named(fault, tmp_path):
    make_check_step.make_model().save_pretrained(tmp_path / "model")
    save_file(make_check_step.make_batch(), tmp_path / "batch.safetensors")
    save_file(make_check_step.reference(fault), tmp_path / "torch.safetensors")
    done = checked(tmp_path / "model", tmp_path / "batch.safetensors",
                   tmp_path / "torch.safetensors")
    last = done.stdout.splitlines()[-1]
    if fault is None:
        assert (done.returncode, last[:9]) == (0, "equal to "), done
    else:
        name = make_check_step.FAULTS[fault][1]
        assert (done.returncode, last.startswith(f"first difference: {name} ")) == (1, True), last


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "gemma3", "phi3", "deepseek_v3", "granite",
                                  "olmo2", "qwen3", "stablelm"])
def test_right_steps_of_families_are_equal(name, tmp_path):
    model = make_families.make_model(name).eval()
    model.save_pretrained(tmp_path / "model")
    torch.manual_seed(2)
    ids = torch.randint(331, (1, 13))

    def step():
        out = model(input_ids=ids, labels=ids)
        return out.logits, out.loss

    save_file({"ids": ids}, tmp_path / "batch.safetensors")
    reference = check_step_reference.reference_of(model, step)
    save_file(reference, tmp_path / "torch.safetensors")
    done = checked(tmp_path / "model", tmp_path / "batch.safetensors",
                   tmp_path / "torch.safetensors")
    assert done.returncode == 0, done.stdout.splitlines()[-1] + done.stderr
    compared = int(done.stdout.splitlines()[-1].split(": ")[1].split()[0])
    assert compared > 40
