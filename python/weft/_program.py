# SPDX-License-Identifier: Apache-2.0
"""The `weft` program that belongs to this package."""

import os
import pathlib
import subprocess
import sys


def _program():
    """The program's path: within the package in a wheel, next to it in a build tree."""
    package = pathlib.Path(__file__).parent
    built = pathlib.Path(sys.modules["weft._weft"].__file__).parent.parent.parent
    for path in (package / "bin" / "weft", built / "bin" / "weft"):
        if path.exists():
            return path
    raise RuntimeError(
        "weft: the program next to the package is missing; build the target weft_program"
    )


def main():
    """The `weft` command of an installed package."""
    program = _program()
    os.execv(program, ["weft", *sys.argv[1:]])


# Flags that a model or a mesh may turn on.
_CAN_BE_OFF = {"sequence-parallel"}


def estimate(**flags):
    """Returns a text with the predicted cost of a configuration of a model on a cluster that need
    not exist: memory by purpose, traffic by axis, time of a step, and with schedule=True its
    schedule. The flags are those of `weft estimate`: estimate(model="small", mesh="dp=2,tp=2",
    strategy="full_shard", dtype="bf16", batch=16, seq=512, machine="h100"). ValueError describes a
    wrong flag."""
    words = []
    for name, value in flags.items():
        name = name.replace("_", "-")
        if value is False and name in _CAN_BE_OFF:
            words.append("--no-" + name)
        if value is False or value is None:
            continue
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        words.append(f"--{name}" if value is True else f"--{name}={value}")
    done = subprocess.run([_program(), "estimate", *words], capture_output=True, text=True)
    if done.returncode == 2:
        raise ValueError(done.stderr.strip().removeprefix("weft: "))
    if done.returncode != 0:
        raise RuntimeError(f"estimate: {done.stderr.strip()}")
    return done.stdout
