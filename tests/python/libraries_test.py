# SPDX-License-Identifier: Apache-2.0
"""`import weft` loads no library of NVIDIA or MPI that another package may bring along."""

import subprocess
import sys

import pytest

_LATE = ("libnccl", "libcudnn", "libcublas", "libnvrtc", "libmpi")


def _run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_import_loads_none_of_them():
    done = _run(
        "import weft; weft.matmul(weft.ones(2, 2), weft.ones(2, 2));"
        "print(open('/proc/self/maps').read())"
    )
    assert done.returncode == 0, done.stderr
    assert "libweft.so" in done.stdout
    for name in _LATE:
        assert name not in done.stdout


@pytest.mark.parametrize("first, second", [("weft", "torch"), ("torch", "weft")])
def test_beside_torch(first, second):
    pytest.importorskip("torch")
    done = _run(f"import {first}; import {second}; print(weft.ones(2).sum(), torch.ones(2).sum())")
    assert done.returncode == 0, done.stderr
