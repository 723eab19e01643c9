# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of docs/recipes.md, and compares what they print with what the page shows."""

import importlib.util
import os
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from launch import LAUNCHERS, launch

PAGE = (pathlib.Path(__file__).parent.parent.parent / "docs/recipes.md").read_text()
BLOCK = r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?"
RECIPES = {
    title: re.findall(BLOCK, text, re.M | re.S)
    for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}


def run(program, folder, launcher="", ranks=1):
    """Runs a program in another process, so that it is alone in it."""
    file = folder / "recipe.py"
    file.write_text(program)
    done = launch(launcher, ranks, [sys.executable, file], env=dict(os.environ))
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


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_half_of_a_job_of_processes(launcher, tmp_path):
    (title,) = [title for title in RECIPES if "half of a job" in title]
    run(RECIPES[title][0][0], tmp_path, launcher, 4)
