# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads: results, failures and Ctrl-C."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback

import pytest
import weft
import weft.nn as nn
import weft.optim as optim


def test_results_come_by_rank():
    assert weft.run_ranks(3, lambda world: (world.rank, world.size)) == [(0, 3), (1, 3), (2, 3)]
    assert weft.run_ranks(1, lambda world: world.name) == ["world"]


def test_an_exception_comes_with_its_traceback_and_rank():
    def fails_here(world):
        if world.rank == 2:
            raise KeyError("a key")
        world.barrier()

    with pytest.raises(KeyError, match="a key") as caught:
        weft.run_ranks(3, fails_here)
    assert caught.value.__notes__ == ["raised by rank 2 of 3"]
    assert "fails_here" in "".join(traceback.format_exception(caught.value))


def test_other_ranks_get_a_comm_error():
    heard = []

    def body(world):
        if world.rank == 0:
            raise ValueError("no more")
        try:
            world.barrier()
        except weft.CommError as error:
            heard.append((error.operation, str(error)))
            raise

    with pytest.raises(ValueError, match="no more"):
        weft.run_ranks(3, body)
    assert len(heard) == 2
    for operation, text in heard:
        assert operation == "barrier()"
        assert "rank 0 threw: ValueError: no more" in text and "__notes__" not in text


def test_a_rank_that_does_not_come_is_named_within_the_deadline():
    def body(world):
        if world.rank == 0:
            world.barrier()

    began = time.monotonic()
    with pytest.raises(weft.CommError, match="rank 1") as caught:
        weft.run_ranks(2, body, deadline=1.0)
    assert caught.value.rank == 1
    assert time.monotonic() - began < 5


def test_ranks_on_another_thread_than_the_main_one():
    results = []
    thread = threading.Thread(target=lambda: results.extend(weft.run_ranks(2, lambda w: w.rank)))
    thread.start()
    thread.join()
    assert results == [0, 1]


def test_wrong_numbers_of_ranks_are_refused():
    with pytest.raises(ValueError, match="run_ranks: the number of ranks is 0"):
        weft.run_ranks(0, lambda world: None)

    def body(world):
        weft.DeviceMesh(world, {"dp": 5})

    with pytest.raises(ValueError, match="5"):
        weft.run_ranks(4, body)


def test_tensors_outlive_their_ranks():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        return weft.distribute(weft.ones((4, 2)), mesh, [weft.Shard(0)])

    first, _ = weft.run_ranks(2, body)
    assert first.shape == (4, 2)
    assert first.local().tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_models_end_while_their_ranks_still_gather():
    """Python frees a model whose next block is being gathered: its rank waits without the lock."""

    class Net(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = weft.nn.Linear(64, 64), weft.nn.Linear(64, 64)
            self.raises = False

        def forward(self, x):
            y = self.first(x)
            if self.raises:
                raise ValueError("no more")
            return self.second(y)

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        net = Net()
        weft.fully_shard(net.first, mesh)
        weft.fully_shard(net.second, mesh)
        weft.fully_shard(net, mesh)
        net.materialize()
        x = weft.randn((4, 64), mesh=mesh, placements=[weft.Shard(0)])
        for net.raises in (False, True):
            try:
                (net(x) ** 2).mean().backward()
            except ValueError:
                pass
        del net

    began = time.monotonic()
    weft.run_ranks(2, body, deadline=20.0)
    assert time.monotonic() - began < 10


def test_random_numbers_do_not_depend_on_the_ranks():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        return weft.randn((7, 3), mesh=mesh, placements=[weft.Shard(0)]).full_tensor().tolist()

    one = weft.run_ranks(1, body, seed=5)[0]
    assert weft.run_ranks(3, body, seed=5) == [one] * 3
    assert weft.run_ranks(1, body, seed=6)[0] != one


@pytest.mark.parametrize("waits", ["in Python", "for another rank"])
@pytest.mark.parametrize("nested", [False, True])
def test_ctrl_c_ends_all_ranks(tmp_path, nested, waits):
    script = tmp_path / "waits.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import os, time, weft

            def body(world):
                os.write(1, b"ready\\n")
                if world.rank == 0 or {waits == "in Python"}:
                    while True:
                        time.sleep(0.01)
                world.barrier()

            def outer(world):
                if world.rank == 0:
                    weft.run_ranks(2, body)
                world.barrier()

            try:
                {"weft.run_ranks(2, outer)" if nested else "weft.run_ranks(3, body)"}
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            """
        )
    )
    child = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        for _ in range(2 if nested else 3):
            assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
    assert out == "interrupted\n", err
    assert child.returncode == 0, err


@pytest.mark.parametrize("nested", [False, True])
def test_ranks_that_only_compute_end_when_another_fails(nested):
    def computes(world):
        while True:
            time.sleep(0.01)

    def body(world):
        if world.rank == nested:
            raise LookupError("lost")
        weft.run_ranks(2, computes) if nested else computes(world)

    began = time.monotonic()
    with pytest.raises(LookupError, match="lost"):
        weft.run_ranks(2, body)
    assert time.monotonic() - began < 20


DAEMONS = {
    "computes": "[weft.matmul(x, x) for _ in iter(int, 1)]",
    "makes and drops": "[weft.tensor([1.0]) + 1 for _ in iter(int, 1)]",
    "runs ranks": "weft.run_ranks(2, lambda w: [weft.matmul(x, x) for _ in iter(int, 1)])",
    "waits": "weft.run_ranks(2, lambda w: w.barrier() if w.rank else time.sleep(60))",
    "differentiates": "[nn.Sequential(Twice())(leaf).sum().backward() for _ in iter(int, 1)]",
}


@pytest.mark.parametrize("what", DAEMONS)
def test_the_interpreter_ends_beside_daemon_threads(what):
    script = textwrap.dedent(
        f"""
        import sys, threading, time, weft
        from weft import nn

        class Twice(nn.Module):
            def forward(self, x):
                return x * 2

        x = weft.ones((200, 200))
        leaf = weft.ones((20, 20)).requires_grad_()
        for _ in range(2):
            threading.Thread(target=lambda: {DAEMONS[what]}, daemon=True).start()
        time.sleep(0.3)
        sys.exit(3)
        """
    )
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "")


def test_policy_and_gradient_mode_are_scopes_of_the_rank():
    assert weft.is_grad_enabled()
    with weft.no_grad():
        assert not weft.is_grad_enabled()
        with weft.enable_grad():
            assert weft.is_grad_enabled()
    assert weft.is_grad_enabled()

    @weft.no_grad()
    def inner():
        return weft.is_grad_enabled()

    assert inner() is False

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        x = weft.distribute(weft.ones((4, 4)), mesh, [weft.Shard(0)])
        y = weft.distribute(weft.ones((4, 4)), mesh, [weft.Shard(1)])
        with weft.traffic("forbid"), pytest.raises(ValueError, match="add"):
            x + y
        return (x + y).shape

    assert weft.run_ranks(2, body) == [(4, 4)] * 2
    with pytest.raises(ValueError, match="expected allow, free_only or forbid"):
        weft.set_traffic("some")


def test_ranks_share_a_scope_of_the_gradient_mode():
    scope, both = weft.no_grad(), threading.Barrier(2, timeout=60)

    def body(world):
        """Rank 0 enters and leaves before rank 1."""
        weft.set_grad_enabled(world.rank == 0)
        if world.rank == 1:
            both.wait()
        with scope:
            if world.rank == 0:
                both.wait()
            both.wait()
            inside = weft.is_grad_enabled()
            if world.rank == 1:
                both.wait()
        if world.rank == 0:
            both.wait()
        return inside, weft.is_grad_enabled()

    assert weft.run_ranks(2, body) == [(False, True), (False, False)]


def test_one_program_for_threads_and_jobs():
    assert weft.run_world(3, lambda world: world.rank) == [0, 1, 2]


def test_meshes_in_garbage_that_another_rank_collects():
    def body(world):
        for _ in range(150):
            mesh = weft.DeviceMesh(world, {"dp": world.size})
            x = weft.distribute(weft.ones((4, 2)), mesh, [weft.Shard(0)])
            cycle = [mesh]
            cycle.append(cycle)
            del mesh, cycle
            if world.rank == 0:
                gc.collect()
            assert (x + x).device_mesh is not None
            assert (x * 2).sum().full_tensor().item() == 16
        return True
    assert weft.run_ranks(4, body) == [True] * 4


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_garbage_gives_memory_back():
    """Objects that a rank left in a cycle are collected after its thread has ended."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(256, 1024)
            self.b = nn.Linear(1024, 256)

        def forward(self, x):
            return self.b(self.a(x))

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        net = Net()
        for module in (net.a, net.b, net):
            weft.fully_shard(module, mesh)
        net.materialize()
        x = weft.distribute(weft.randn((8, 256)), mesh, {"dp": weft.Shard(0)})
        loss = (net(x) ** 2).mean()
        loss.backward()
        optimizer = optim.AdamW(net.named_parameters())
        optimizer.step()
        net.cycle = [net, optimizer, loss, lambda: net]

    for i in range(25):
        weft.run_ranks(2, body, threads_per_rank=1)
        gc.collect()
        if i == 4:
            before = resident_bytes()
    assert resident_bytes() - before < 12e6


def test_too_many_ranks_are_refused():
    for ranks in (0, -1, 1025, 10**9):
        with pytest.raises(ValueError, match=f"number of ranks is {ranks}, expected 1 to 1024"):
            weft.run_ranks(ranks, lambda world: None)
    with pytest.raises(ValueError, match="size is 2147483647, expected 1 to 1048576"):
        weft.fake_world(0, 2**31 - 1)


def test_a_mesh_over_a_group_is_of_its_members():
    def body(world):
        group = world.split(-1 if world.rank == 0 else 0, world.rank, "rest")
        mesh = weft.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",), world=group)
        return bool(group), bool(mesh), str(mesh)

    expected = [(False, False, "mesh()"), *[(True, True, "mesh(dp=2)")] * 2]
    assert weft.run_ranks(3, body) == expected
