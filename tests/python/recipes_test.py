# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of docs/recipes.md, and compares what they print with what the page shows."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

PAGE = (pathlib.Path(__file__).parent.parent.parent / "docs/recipes.md").read_text()
BLOCK = r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?"
RECIPES = {
    title: re.findall(BLOCK, text, re.M | re.S)
    for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}


def run(program, folder, command=()):
    """Runs a program in another process, so that it is alone in it."""
    file = folder / "recipe.py"
    file.write_text(program)
    done = subprocess.run(
        [*command, sys.executable, file],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_recipe_has_one_program():
    assert len(RECIPES) == 6
    assert all(len(programs) == 1 for programs in RECIPES.values())


@pytest.mark.parametrize("title", RECIPES)
def test_recipe(title, tmp_path):
    ((program, expected),) = RECIPES[title]
    if "import torch\n" in program and not importlib.util.find_spec("torch"):
        pytest.skip("there is no torch")
    printed = run(program, tmp_path)
    assert not expected or printed == expected


@pytest.mark.parametrize("launcher", ["weft run", "mpirun"])
def test_half_of_a_job_of_processes(launcher, tmp_path):
    (title,) = [title for title in RECIPES if "half of a job" in title]
    if launcher == "mpirun" and not shutil.which("mpirun"):
        pytest.skip("there is no mpirun")
    run_command = [os.environ.get("WEFT_PROGRAM", "weft"), "run", "-n", "4", "--"]
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "4"]
    run(RECIPES[title][0][0], tmp_path, run_command if launcher == "weft run" else mpirun)
