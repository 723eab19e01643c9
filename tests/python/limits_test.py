# SPDX-License-Identifier: Apache-2.0
"""Numbers out of range, memory that ends, and modules nested deeply: an error, or the result."""

import os
import resource
import subprocess
import sys
import time

import pytest

import weft
import weft.torch as torch

HUGE = "2147483647"
LAUNCHERS = {
    "WEFT_WORLD_SIZE": ("WEFT_RANK", "WEFT_LOCAL_RANK", "WEFT_LOCAL_WORLD_SIZE"),
    "OMPI_COMM_WORLD_SIZE": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "WORLD_SIZE": ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"),
    "SLURM_STEP_NUM_TASKS": (
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_NODES",
    ),
}


def connected(variables):
    """The last line of stderr of a process that connects with these variables."""
    prefixes = ("WEFT_", "OMPI_", "PMI", "SLURM_")
    rest = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    program = (
        "import resource, weft; resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30)); "
        "weft.connect(deadline=2)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=rest | variables, capture_output=True, text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    return ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("size", LAUNCHERS)
@pytest.mark.parametrize("number", [HUGE, "1048577"])
def test_an_absurd_number_of_ranks_is_refused_at_once(size, number):
    variables = dict.fromkeys(LAUNCHERS[size], "0") | {size: number}
    for name in LAUNCHERS[size]:
        if name.endswith(("LOCAL_WORLD_SIZE", "LOCAL_SIZE")):
            variables[name] = number
    if "SLURM_STEP_NUM_NODES" in variables:
        variables["SLURM_STEP_NUM_NODES"] = "1"
    start = time.monotonic()
    assert connected(variables) == (
        f"ValueError: connect: {size} is {number}, expected at most 1048576"
    )
    assert time.monotonic() - start < 15


def in_child_with_memory(pages, work):
    """Runs `work` in a child with `pages` pages of memory left; returns its signal, or 0."""
    child = os.fork()
    if child == 0:
        try:
            used = int(open("/proc/self/statm").read().split()[0])
            most = (used + pages) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            work()
        except (RuntimeError, MemoryError):
            os._exit(3)
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WTERMSIG(status)


def odd_products():
    for dtype in (weft.float32, weft.bfloat16):
        for n in (7, 33, 65, 130, 257):
            weft.ones((n, n + 1), dtype=dtype) @ weft.ones((n + 1, n + 3), dtype=dtype)


def attention():
    for dtype in (weft.float32, weft.bfloat16):
        x = weft.ones((1, 2, 200, 64), dtype=dtype)
        torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


def linear_backward():
    weft.nn.Linear(130, 70)(weft.ones((50, 130))).sum().backward()


@pytest.mark.parametrize("work", [odd_products, attention, linear_backward])
def test_memory_that_ends_is_an_exception(work):
    signals = {}
    for pages in (1, 20, 60, 150, 300, 500, 1000, 2000, 4000, 8000, 16000):
        signals[pages] = in_child_with_memory(pages, work)
    assert set(signals.values()) == {0}, signals


@pytest.mark.parametrize(
    "call, error",
    [
        (
            lambda: weft.arange(2**63),
            "arange: number of elements from 0 to 9.22337e+18 by 1 is 9.22337e+18, expected below "
            "2^63",
        ),
        (
            lambda: weft.arange(-(2**63), 2**63 - 1),
            "arange: number of elements from -9.22337e+18 to 9.22337e+18 by 1 is 1.84467e+19, "
            "expected below 2^63",
        ),
        (
            lambda: torch.arange(0, 1e18, 1e-5),
            "arange: number of elements from 0 to 1e+18 by 1e-05 is 1e+23, expected below 2^63",
        ),
        (lambda: weft.linspace(0, 1, 2**62), "layout: a tensor [4611686018427387904] of f32"),
        (lambda: weft.eye(2**32), "layout: a tensor [4294967296, 4294967296] of f32"),
        (lambda: weft.ones(1).expand(2**62, 4), "layout: a tensor [4611686018427387904, 4]"),
        (lambda: torch.ones(3).repeat(2**62), "layout: a tensor [4611686018427387904, 3]"),
        (
            lambda: weft.ones(4).reshape(2**33, 2**33),
            "reshape: number of elements of [8589934592, 8589934592] is 7.3787e+19, expected 4",
        ),
    ],
)
def test_sizes_that_overflow_are_shown_as_asked(call, error):
    with pytest.raises(ValueError) as raised:
        call()
    assert error in str(raised.value)


def nested(depth):
    module = weft.nn.Sequential(weft.nn.Linear(4, 4))
    for _ in range(depth):
        module = weft.nn.Sequential(module)
    return module


def test_nested_modules_take_time_in_proportion():
    """With work for all modules below each one, this takes more than a minute."""
    module = nested(6000)
    start = time.monotonic()
    assert module(weft.ones((2, 4))).shape == (2, 4)
    assert len(list(module.parameters())) == 2
    assert not module.eval().training
    assert len(module.state_dict()) == 2
    assert time.monotonic() - start < 20


def test_a_mesh_that_only_some_ranks_make_names_split():
    texts = []

    def body(world):
        if world.rank == 1:
            return time.sleep(1)
        try:
            weft.DeviceMesh(world, {"dp": 2})
        except weft.CommError as error:
            texts.append(str(error))

    with pytest.raises(weft.CommError):
        weft.run_ranks(2, body, deadline=0.3)
    assert texts[0] == (
        "mesh: world: collective 1: all_reduce(min, i64, [1]): rank 1 did not call it within 300 "
        'ms; arrived: rank 0; all ranks of "world" make the mesh, and world.split groups those '
        "that work together"
    )
