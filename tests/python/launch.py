# SPDX-License-Identifier: Apache-2.0
"""Starts programs as threads of one process, under `weft run` or under mpirun."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

LAUNCHERS = ["weft run", "mpirun"]

# mpirun joins the output of its processes in pieces that may be shorter than a line, so each
# process writes files of its own.
TO_FILES = 'r=$OMPI_COMM_WORLD_RANK; exec "$@" >"$WEFT_SAID/out.$r" 2>"$WEFT_SAID/err.$r"'
MPIRUN = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def launch(launcher, ranks, command, env=None, timeout=120):
    """The end of a command, and what its processes print: under mpirun one after another."""
    env = os.environ | {"OMP_WAIT_POLICY": "passive"} if env is None else env
    before = []
    if launcher == "weft run":
        before = [os.environ.get("WEFT_PROGRAM", "weft"), "run", "-n", ranks, "--"]
    elif launcher == "mpirun":
        before = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", ranks]
        before += ["sh", "-c", TO_FILES, "sh"]
    if before and not shutil.which(before[0]):
        pytest.skip(f"there is no {launcher}")
    with tempfile.TemporaryDirectory() as said:
        done = subprocess.run(
            [str(word) for word in [*before, *command]],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=env | MPIRUN | {"WEFT_SAID": said},
        )
        for file in sorted(pathlib.Path(said).glob("out.*")):
            done.stdout += file.read_text()
        for file in sorted(pathlib.Path(said).glob("err.*")):
            done.stderr += file.read_text()
    return done
