# SPDX-License-Identifier: Apache-2.0
"""Faults of jobs that go on by themselves: with copies in memory, other numbers of ranks, two
hosts."""
import os
import signal
import socket
import subprocess

from runs import Action
from table import fault, moment


def goes_on(plan, case, *flags):
    """Lets the job go on by itself. Shells before the ranks hide `weft train` from the launcher."""
    plan.launch = list(flags)
    plan.flags["--resume"] = str(case.ck)


@fault("copies", "during", "signal", ways=("processes",), harmless=True, weight=2)
def copies(case, plan, rng):
    """kill -9 of one or two ranks of a job that keeps copies in the memory of the host."""
    goes_on(plan, case, "--redundancy", "host")
    ranks = rng.sample(range(case.settings.ranks), rng.choice([1, 1, 2]))

    def kill(job):
        for rank in ranks:
            job.send(rank, signal.SIGKILL)

    plan.actions.append(Action(f"kill -9 of ranks {ranks}", do=kill,
                               **moment(rng, plan.settings.steps)))
    return plan.actions[-1].what


@fault("elastic", "during", "signal", ways=("processes",), harmless=True, alone=True, weight=2)
def elastic(case, plan, rng):
    """A rank of an elastic job is killed or leaves by SIGTERM, or `weft resize` changes their
    number."""
    case.change(plan, reproducible=True, mesh="",
                strategy=rng.choice(["full_shard", "ddp", "zero2"]))
    plan.flags.pop("--mesh", None)
    redundancy = ["--redundancy", "host"] if rng.random() < 0.7 else []
    goes_on(plan, case, "--elastic", "1:4", *redundancy)
    rank, ranks = rng.randrange(case.settings.ranks), rng.randint(1, 4)

    def resize(job):
        launcher = job.launcher_of(rank)
        if launcher:
            subprocess.run([case.program, "resize", str(launcher), str(ranks)], check=False,
                           capture_output=True)

    what, do = rng.choice([
        (f"kill -9 of rank {rank}", lambda job: job.send(rank, signal.SIGKILL)),
        (f"SIGTERM to rank {rank}", lambda job: job.send(rank, signal.SIGTERM)),
        (f"resize to {ranks}", resize)])
    plan.actions.append(Action(what, do=do, **moment(rng, plan.settings.steps)))
    return f"{what}, {' '.join(redundancy) or 'no copies'}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


@fault("mirror", "during", "signal", ways=("processes",), harmless=True, alone=True, weight=2)
def mirror(case, plan, rng):
    """One of two hosts that meet over TCP and keep each other's copies is lost and replaced, or its
    rank is killed."""
    case.change(plan, ranks=2, mesh="", steps=40, strategy=rng.choice(["full_shard", "ddp"]))
    plan.flags.pop("--mesh", None)
    goes_on(plan, case, "--redundancy", "mirror")
    plan.port, rank, whole = free_port(), rng.randrange(2), rng.random() < 0.6

    def kill(job):
        launcher = job.launcher_of(rank)
        if job.lines() > plan.settings.steps * 3 // 4:
            return
        if whole and launcher:
            os.kill(launcher, signal.SIGKILL)
        else:
            job.send(rank, signal.SIGKILL)

    what = f"kill -9 of {'host' if whole else 'rank'} {rank}"
    # Not near the end: a rank that dies when those of the other host have ended waits for them.
    plan.actions.append(Action(what, do=kill, **moment(rng, plan.settings.steps // 2)))
    return what
