# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 and its training loop, written for PyTorch, run on weft after few changes and print the
same losses."""

import difflib
import re
import sys

import numpy as np
import pytest
from from_pytorch_test import FOLDER, PROGRAM, run

# The lines in which the two scripts of a GPT-2 differ, by their contents.
GPT_DIFFERENCES = {
    "imports": r"^(import torch|from torch|import weft|from weft)|^\"\"\"A GPT-2",
    "size() to shape": r"\.size\(|\.shape",
    "mesh": r"init_device_mesh|, mesh\)",
    "fully_shard": r"fully_shard|for block in model",
    "the batch's rows": r"return x, y|distribute_tensor|def get_batch|get_batch\(",
    "reading the loss": r"full_tensor\(\)",
}


def losses(text):
    """The losses that rank 0 printed."""
    return [float(loss) for loss in re.findall(r"^(?:\[0\] )?step \d+: (\S+)", text, re.M)]


def test_a_gpt_differs_in_few_lines():
    scripts = [(FOLDER / f"{name}_gpt.py").read_text().splitlines() for name in ("torch", "weft")]
    changed = [
        line[2:] for line in difflib.ndiff(*scripts) if line.startswith(("+ ", "- ")) and line[2:]
    ]
    unknown = [
        line for line in changed if not any(re.search(p, line) for p in GPT_DIFFERENCES.values())
    ]
    assert unknown == [] and len(changed) < 30


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_gpt_trains_as_in_pytorch(ranks):
    expected = losses((FOLDER / "torch_gpt.txt").read_text())
    script = FOLDER / "weft_gpt.py"
    got = losses(run(PROGRAM, "run", "-n", ranks, "--", sys.executable, script))
    assert len(got) == len(expected) == 20
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def test_the_gpts_losses_are_pytorchs():
    pytest.importorskip("torch")
    expected = losses((FOLDER / "torch_gpt.txt").read_text())
    np.testing.assert_allclose(
        losses(run(sys.executable, FOLDER / "torch_gpt.py")), expected, rtol=0, atol=1e-5
    )
