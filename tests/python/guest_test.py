# SPDX-License-Identifier: Apache-2.0
"""Programs of mpi4py in which weft is a guest."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import weft

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from launch import launch

pytest.importorskip("mpi4py")


def run(program, ranks):
    """The output of a program under mpirun."""
    kept = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    done = launch("mpirun", ranks, [sys.executable, "-c", textwrap.dedent(program)], env=kept)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_halves_and_all_are_worlds():
    assert run(
        """
        import ctypes, os, signal
        from mpi4py import MPI

        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_char_p
        before = dict(os.environ), [signal.getsignal(n) for n in range(1, 32)]
        import weft

        job = MPI.COMM_WORLD
        half = job.Split(job.rank % 2, -job.rank)

        def total(world):
            mesh = weft.DeviceMesh(world, {"ranks": world.size})
            mine = weft.full((70000,), float(job.rank + 1))
            whole = weft.from_local(mine, mesh, [weft.Partial()]).redistribute([weft.Replicate()])
            return whole.local().numpy()[[0, -1]].tolist()

        world = weft.connect(half)
        assert (world.rank, world.size) == (half.rank, half.size)
        everyone = weft.Communicator.from_mpi(job)
        line = total(world), total(everyone), total(weft.connect(MPI.COMM_SELF))
        assert not weft.connect(MPI.COMM_NULL)
        assert (dict(os.environ), [signal.getsignal(n) for n in range(1, 32)]) == before
        assert libc.getenv(b"OMP_WAIT_POLICY") is None
        print(job.rank, *line, flush=True)
        """,
        3,
    ) == [
        "0 [4.0, 4.0] [6.0, 6.0] [1.0, 1.0]",
        "1 [2.0, 2.0] [6.0, 6.0] [2.0, 2.0]",
        "2 [4.0, 4.0] [6.0, 6.0] [3.0, 3.0]",
    ]


def test_a_wrong_communicator_is_refused():
    text = "connect: comm is of type int, expected a communicator of mpi4py.MPI"
    code = f"""
import weft
try:
    weft.connect(7)
except TypeError as error:
    assert str(error) == "{text}", error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert callable(weft.Communicator.from_mpi)
