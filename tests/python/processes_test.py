# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes that run Python, under weft run and mpirun: success and failures."""

import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
import weft

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import two_ranks
from launch import LAUNCHERS, launch

SCRIPT = pathlib.Path(two_ranks.__file__)
PROGRAM = os.environ["WEFT_PROGRAM"]
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_train_as_two_threads_do(launcher):
    expected = weft.run_ranks(2, train_as_threads, seed=4)
    done = launch(launcher, 2, [sys.executable, SCRIPT, "train"])
    assert done.returncode == 0, done.stderr
    lines = sorted(re.findall(r"rank (\d): (\[[^]]*\])", done.stdout))
    assert lines == [(str(rank), str(losses)) for rank, losses in enumerate(expected)]


def train_as_threads(world):
    return two_ranks.train(world, weft.DeviceMesh(world, {"dp": 2}))


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("raise", "rank 1 gave up: LookupError: rank 1 lost its way"),
        ("exit", "rank 1"),
        ("late", "rank 1"),
    ],
)
def test_a_rank_that_fails_is_named_by_the_other(launcher, case, words):
    began = time.monotonic()
    done = launch(launcher, 2, [sys.executable, SCRIPT, case])
    assert done.returncode != 0
    assert time.monotonic() - began < 45
    assert "CommError" in done.stderr and words in done.stderr, done.stderr


def test_a_killed_rank_is_named_by_the_launcher():
    done = launch("weft run", 2, [sys.executable, SCRIPT, "killed"])
    assert done.returncode == 128 + 9
    assert "rank 1" in done.stderr


def test_a_forked_child_computes():
    """The threads of its parent do not exist in the child."""
    script = """
import os, signal, weft
x = weft.randn(1 << 20)
total = weft.exp(x).sum().item()
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0 if weft.exp(x).sum().item() == total and weft.get_num_threads() == 1 else 3)
assert os.waitpid(child, 0)[1] == 0
child = os.fork()
if child == 0:
    signal.alarm(20)
    world = weft.connect()
    os._exit(0 if weft.exp(x).sum().item() == total and weft.get_num_threads() == 1 else 3)
assert os.waitpid(child, 0)[1] == 0
"""
    environment = dict(os.environ, OMP_NUM_THREADS="2")
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env=environment)


@pytest.mark.parametrize("chosen", ["/nonexistent/libmpi.so", "libc.so.6"])
def test_an_mpi_is_chosen_by_its_file(chosen):
    sizes = dict(OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_SIZE="1")
    ranks = dict(OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_LOCAL_RANK="0")
    done = subprocess.run(
        [sys.executable, "-c", "import weft; weft.connect()"],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | sizes | ranks | {"WEFT_MPI": chosen},
    )
    assert done.returncode != 0
    assert f'WEFT_MPI is "{chosen}", expected the file of an MPI library' in done.stderr
