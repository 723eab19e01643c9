# SPDX-License-Identifier: Apache-2.0
"""Threads: which may call for a rank, how many kernels use, and what OpenMP's do without work."""

import io
import os
import subprocess
import sys
import textwrap
import threading

import pytest

import weft

TWO_THREADS = "two threads of this rank make calls at once, expected one thread at a time"


def in_process(program, **variables):
    """stdout and stderr of a program that starts without a policy for threads."""
    unset = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, ended.stderr


def on_thread(function):
    """Returns what the function returns or raises on another thread."""
    results = []

    def run():
        try:
            results.append(function())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def counts_of(world, value, counts):
    for _ in range(100):
        x = weft.full((8,), value)
        try:
            weft.all_reduce(x, world)
        except (ValueError, weft.CommError):
            counts["raised"] += 1
            continue
        counts["right" if x.tolist() == [value * world.size] * 8 else "wrong"] += 1


def test_two_threads_of_a_rank_never_mix_their_sums():
    counts = {"right": 0, "wrong": 0, "raised": 0}

    def body(world):
        world.barrier()
        other = threading.Thread(target=counts_of, args=(world, 1000.0, counts))
        other.start()
        counts_of(world, 1.0, counts)
        other.join()

    try:
        weft.run_ranks(2, body, deadline=1)
    except weft.CommError:
        pass
    assert counts["wrong"] == 0, counts


def test_a_second_thread_is_refused_while_a_call_is_under_way():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        x = weft.distribute(weft.arange(8, dtype=weft.float32), mesh, [weft.Shard(0)])
        calls = {
            "barrier": world.barrier,
            "add": lambda: x + 1,
            "redistribute": lambda: x.full_tensor(),
            "distribute": lambda: weft.distribute(weft.ones(5), mesh, [weft.Shard(0)]),
            "zeros": lambda: weft.zeros((9, 3), mesh=mesh, placements=[weft.Shard(0)]),
            "mesh": lambda: weft.DeviceMesh(world, {"tp": 2}),
        }
        raised = {}

        def try_all():
            for name, call in calls.items():
                with pytest.raises(ValueError) as error:
                    call()
                raised[name] = str(error.value)

        world.barrier()
        if world.rank == 1:
            other = threading.Thread(target=try_all)
            timer = threading.Timer(0.2, other.start)
            timer.start()
            world.barrier()  # rank 0 comes when the others have been refused
            timer.join()
            other.join()
            assert all(TWO_THREADS in text for text in raised.values()), raised
            assert raised.keys() == calls.keys()
        else:
            threading.Event().wait(1)
            world.barrier()
        return (x + 1).full_tensor().tolist()

    assert weft.run_ranks(2, body) == [[float(i) for i in range(1, 9)]] * 2


def test_a_rank_moves_between_threads_while_no_call_is_under_way():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        x = weft.distribute(weft.arange(6, dtype=weft.float32), mesh, [weft.Shard(0)])
        for i in range(20):
            moved = on_thread(lambda: (x * i).full_tensor().tolist())
            assert moved == [float(i * j) for j in range(6)], moved
            assert (x + i).sum().full_tensor().item() == 15 + 6 * i

    weft.run_ranks(3, body)


def test_a_number_of_threads_is_set_and_read():
    before = weft.get_num_threads()
    try:
        weft.set_num_threads(3)
        assert weft.get_num_threads() == 3
        import weft.torch as torch

        torch.set_num_threads(1)
        assert torch.get_num_threads() == weft.get_num_threads() == 1
        assert on_thread(lambda: weft.run_ranks(1, lambda _: weft.get_num_threads(),
                                                threads_per_rank=2)) == [2]
        for wrong in (0, -1, 1025):
            with pytest.raises(ValueError) as error:
                weft.set_num_threads(wrong)
            assert str(error.value) == (
                f"set_num_threads: number of threads is {wrong}, expected 1 to 1024"
            )
        assert weft.get_num_threads() == 1
    finally:
        weft.set_num_threads(before)


def test_threads_without_work_sleep_and_the_environment_stays():
    program = """
        import os, subprocess, sys
        import weft
        assert "OMP_WAIT_POLICY" not in os.environ
        subprocess.run(["env"], check=True)
    """
    printed, shown = in_process(program, OMP_DISPLAY_ENV="TRUE")
    if "OMP_WAIT_POLICY" not in shown:
        pytest.skip("this build is without OpenMP")
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in shown
    assert "OMP_WAIT_POLICY" not in printed
    _, shown = in_process(program.replace("assert", "#"), OMP_DISPLAY_ENV="TRUE",
                          OMP_WAIT_POLICY="active")
    assert "OMP_WAIT_POLICY = 'ACTIVE'" in shown


def test_a_loaded_openmp_keeps_its_policy_with_fewer_threads_where_others_run():
    program = """
        import ctypes, sys, os
        try:
            ctypes.CDLL("libgomp.so.1")
        except OSError:
            sys.exit(0)
        import weft._load as load
        import weft
        load._free_cores = lambda: 1
        weft.set_num_threads(4)
        assert load._set_fewer_threads(weft._weft) == 1
        assert weft.get_num_threads() == 1
        load._free_cores = lambda: 8
        assert load._set_fewer_threads(weft._weft) == 0
        assert weft.get_num_threads() == 1
    """
    _, shown = in_process(program, OMP_DISPLAY_ENV="VERBOSE")
    assert "GOMP_SPINCOUNT = '0'" not in shown
    cores = len(os.sched_getaffinity(0))
    assert (cores + 1) // 2 <= weft._load._free_cores() <= cores


@pytest.mark.parametrize(
    "cores, machine, running, free",
    [
        (8, 8, 1, 8),
        (8, 8, 3, 6),
        (8, 8, 90, 4),
        (1, 1, 9, 1),
        (4, 64, 17, 3),
        (4, 64, 1, 4),
        (4, 64, 65, 2),
        (3, 64, 200, 2),
    ],
)
def test_free_cores_are_a_share_of_the_machines(monkeypatch, cores, machine, running, free):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(os, "cpu_count", lambda: machine)
    load = f"1.00 1.00 1.00 {running}/500 77"
    monkeypatch.setattr(weft._load, "open", lambda _: io.StringIO(load), raising=False)
    assert weft._load._free_cores() == free


IN_SUBINTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
program = "try: import weft\\nexcept ImportError as error: print(error, flush=True)"
interpreters.run_string(interpreters.create(), program)
import weft
print(weft.ones(3).sum().item())
"""


def test_a_subinterpreter_is_refused():
    printed, _ = in_process(IN_SUBINTERPRETER)
    assert printed.splitlines() == [
        "weft: this is a subinterpreter, expected the main interpreter of a process; use "
        "run_ranks for ranks that are threads, or multiprocessing with the spawn method",
        "3.0",
    ]
