# SPDX-License-Identifier: Apache-2.0
"""The `weft` program that belongs to this package."""

import importlib.util
import os
import sys


def _prefix():
    """The folder whose bin/ has the program that belongs to this package: in a wheel the package
    itself, in a build tree or a system's package one above it."""
    import pathlib

    module = pathlib.Path(sys.modules["weft._weft"].__file__).resolve()
    for folder in module.parents[:5]:
        if (folder / "bin" / "weft").is_file():
            return folder
    raise RuntimeError(
        "weft: the program next to the package is missing; build the target weft_program"
    )


def _program():
    """The program, of the package weft_cuda if that is installed."""
    import pathlib

    cuda = importlib.util.find_spec("weft_cuda")
    if cuda is not None:
        return pathlib.Path(cuda.origin).parent / "bin" / "weft"
    return _prefix() / "bin" / "weft"


def _cmake_dir():
    """The folder for CMake's variable weft_DIR."""
    prefix = _prefix()
    for pattern in ("lib*/cmake/weft", "lib/*/cmake/weft"):
        for folder in sorted(prefix.glob(pattern)):
            return folder
    raise RuntimeError(
        f"weft: {prefix} has no CMake files; install the wheel, the package libweft-dev, or by "
        "cmake --install"
    )


def main():
    """The `weft` command of an installed package. It answers the paths of the package itself:
    --prefix has bin/, lib/ and include/, and --cmake-dir is for find_package(weft)."""
    paths = {"--prefix": _prefix, "--cmake-dir": _cmake_dir}
    try:
        if len(sys.argv) == 2 and sys.argv[1] in paths:
            print(paths[sys.argv[1]]())
            return
        program = _program()
    except RuntimeError as error:
        sys.exit(str(error))
    os.execv(program, ["weft", *sys.argv[1:]])


# Flags that a model or a mesh may turn on.
_CAN_BE_OFF = {"sequence-parallel"}


def estimate(**flags):
    """Returns a text with the predicted cost of a configuration of a model on a cluster that need
    not exist: memory by purpose, traffic by axis, time of a step, and with schedule=True its
    schedule. The flags are those of `weft estimate`: estimate(model="small", mesh="dp=2,tp=2",
    strategy="full_shard", dtype="bf16", batch=16, seq=512, machine="h100"). ValueError describes a
    wrong flag."""
    import subprocess

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
