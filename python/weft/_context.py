# SPDX-License-Identifier: Apache-2.0
"""Scopes of a rank's state, and functions that make this process a rank of a job."""

import contextlib
import sys
import threading

from weft import _load, _weft


class _GradMode(contextlib.ContextDecorator, threading.local):
    """Sets whether ops are recorded, as a `with` scope or as a decorator. Each thread has its own
    list of the modes that it restores when it leaves its scopes."""

    def __init__(self, enabled):
        self._enabled, self._before = enabled, []

    def _recreate_cm(self):
        return _GradMode(self._enabled)

    def __enter__(self):
        self._before.append(_weft.set_grad_enabled(self._enabled))
        return self

    def __exit__(self, *_):
        _weft.set_grad_enabled(self._before.pop())
        return False


def no_grad():
    """Disables recording for backward: `with weft.no_grad():`, or `@weft.no_grad()`."""
    return _GradMode(False)


def enable_grad():
    """Enables recording again within a `no_grad`."""
    return _GradMode(True)


@contextlib.contextmanager
def traffic(policy):
    """Limits the implicit traffic of ops in the scope: "allow" any, "free_only" conversions without
    bytes, "forbid" none. An op whose operands lack the layout it needs raises ValueError."""
    before = _weft.set_traffic(policy)
    try:
        yield
    finally:
        _weft.set_traffic(before)


@contextlib.contextmanager
def no_sync(model, holds=True):
    """Makes backwards in the scope micro-steps before the last one: gradients of a fully sharded
    model wait for the sync where its strategy allows. With `holds` False the scope does nothing."""
    scope = _weft._NoSync(model, holds)
    try:
        yield
    finally:
        del scope


@contextlib.contextmanager
def trace(world, path, most_events=1 << 17):
    """Writes the ops and collectives of all ranks in the scope to one Chrome trace, for
    https://ui.perfetto.dev. Collective at its end; nothing is written when the scope raises."""
    scope = _weft._TraceScope(most_events)
    yield
    scope.write(world, str(path))


_hears_of_failures = False


def _tell_failures(world):
    """Makes an exception that ends this process end the waits of the other ranks with its text."""
    global _hears_of_failures
    if _hears_of_failures or world.size == 1:
        return
    _hears_of_failures = True
    before = sys.excepthook

    def tell(kind, raised, where):
        # An error that only reports another rank's failure is not reported again.
        is_own = not issubclass(kind, _weft.CommError)
        if is_own and issubclass(kind, (Exception, KeyboardInterrupt)):
            _weft._abort(world, f"{kind.__name__}: {raised}")
        before(kind, raised, where)

    sys.excepthook = tell


def run_world(ranks, body, *, deadline=600.0, threads_per_rank=0, seed=0):
    """Calls body(world) on all ranks and returns their results. In a job, runs on this process's
    rank of `connect` and returns only its result, in a list; otherwise on `ranks` threads, as
    `run_ranks` does. ValueError when the job has another number of ranks."""
    options = {"deadline": deadline, "threads_per_rank": threads_per_rank, "seed": seed}
    launched = _weft.launched_ranks()
    if launched == 1:
        return _weft.run_ranks(ranks, body, **options)
    if ranks not in (1, launched):
        raise ValueError(
            f"run_world: number of ranks is {ranks}, expected {launched}, that of the job"
        )
    return [body(connect(**options))]


def connect(comm=None, *, deadline=600.0, threads_per_rank=0, seed=0):
    """Returns the communicator of all ranks of this process's job, started by `weft run`, mpirun,
    mpiexec, torchrun or srun; of one rank if the process runs alone. The calling thread becomes the
    rank; further calls return the same communicator. RuntimeError names ranks that did not arrive
    within `deadline` seconds, and a rank of another build.

    With `comm`, a communicator of mpi4py, all processes of which call this: the communicator of
    those processes, in MPI's order; an empty one for MPI.COMM_NULL. The program initialises and
    finalises MPI; threads_per_rank 0 leaves OpenMP as it is."""
    if comm is not None:
        world = _weft._connect_mpi(comm, deadline, threads_per_rank, seed)
        if world:
            _tell_failures(world)
        return world
    if threads_per_rank == 0 and _weft.launched_ranks() == 1:
        threads_per_rank = _load.fewer_threads
    world = _weft._connect(deadline, threads_per_rank, seed)
    _tell_failures(world)
    return world
