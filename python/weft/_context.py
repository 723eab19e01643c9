# SPDX-License-Identifier: Apache-2.0
"""Scopes of a rank's state, and the process as a rank of a job."""

import contextlib
import sys
import threading

from weft import _weft


class _Modes(threading.local):
    """What a thread goes back to when it leaves the scopes that it is in."""

    def __init__(self):
        self.before = []


class _GradMode(contextlib.ContextDecorator):
    """Sets whether ops are recorded, for a `with` or for the calls of a function."""

    def __init__(self, enabled):
        self._enabled = enabled
        self._modes = _Modes()

    def _recreate_cm(self):
        return _GradMode(self._enabled)

    def __enter__(self):
        self._modes.before.append(_weft.set_grad_enabled(self._enabled))
        return self

    def __exit__(self, *_):
        _weft.set_grad_enabled(self._modes.before.pop())
        return False


def no_grad():
    """No op in the scope is recorded for backward: `with weft.no_grad():`, or `@weft.no_grad()`."""
    return _GradMode(False)


def enable_grad():
    """Ops in the scope are recorded again, within a `no_grad`."""
    return _GradMode(True)


@contextlib.contextmanager
def traffic(policy):
    """The implicit traffic that ops in the scope may cause: "allow" any, "free_only" what moves no
    bytes, "forbid" none. An op whose operands are not laid out for it raises ValueError."""
    before = _weft.set_traffic(policy)
    try:
        yield
    finally:
        _weft.set_traffic(before)


@contextlib.contextmanager
def no_sync(model, holds=True):
    """Backwards in the scope are micro-steps but the last: gradients of a fully sharded model wait
    for the sync where its strategy lets them. With `holds` False the scope does nothing."""
    scope = _weft._NoSync(model, holds)
    try:
        yield
    finally:
        del scope


@contextlib.contextmanager
def trace(world, path, most_events=1 << 17):
    """Writes what ops and collectives of all ranks take in the scope to one Chrome trace, to be
    opened in https://ui.perfetto.dev. Collective at its end; nothing is written when it raises."""
    scope = _weft._TraceScope(most_events)
    yield
    scope.write(world, str(path))


_hears_of_failures = False


def _tell_failures(world):
    """Lets an exception that ends this process end the waits of the other ranks, with its words."""
    global _hears_of_failures
    if _hears_of_failures or world.size == 1:
        return
    _hears_of_failures = True
    before = sys.excepthook

    def tell(kind, raised, where):
        if issubclass(kind, Exception) or issubclass(kind, KeyboardInterrupt):
            # The echo of another rank's failure is no news.
            if not issubclass(kind, _weft.CommError):
                _weft._abort(world, f"{kind.__name__}: {raised}")
        before(kind, raised, where)

    sys.excepthook = tell


def run_world(ranks, body, *, deadline=600.0, threads_per_rank=0, seed=0):
    """Calls body(world) on all ranks and returns what they returned: on this process's rank of
    `connect` when it is one of a job (its result alone, in a list), else on `ranks` threads as
    `run_ranks` does. One program for both. ValueError when the job has another number of ranks."""
    options = {"deadline": deadline, "threads_per_rank": threads_per_rank, "seed": seed}
    launched = _weft.launched_ranks()
    if launched == 1:
        return _weft.run_ranks(ranks, body, **options)
    if ranks not in (1, launched):
        raise ValueError(f"run_world: {ranks} ranks are asked for but the job has {launched}")
    return [body(connect(**options))]


def connect(*, deadline=600.0, threads_per_rank=0, seed=0):
    """The communicator of all ranks of the job that this process is one rank of: started by `weft
    run`, mpirun, torchrun or srun. Of one rank when it is alone. The calling thread becomes the
    rank; when called again it gives the same. RuntimeError names ranks that did not come within
    `deadline` seconds, and a rank that is another build."""
    world = _weft._connect(deadline, threads_per_rank, seed)
    _tell_failures(world)
    return world
