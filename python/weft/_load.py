# SPDX-License-Identifier: Apache-2.0
"""Loads the compiled module: refuses subinterpreters, and lets idle threads of kernels sleep.

OpenMP's threads poll for their next work, by default for some milliseconds, which takes cores from
threads that compute wherever other programs run. It reads the policy when its library is loaded. A
process that has loaded the library before keeps its policy; weft then uses fewer threads where
other programs run."""

import importlib.util
import math
import os
import sys

# These are the names of /proc/cpuinfo; abm is lzcnt.
_X86_64_V3 = ("avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm")


def _refuse_subinterpreter():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError(
                "weft: this is a subinterpreter, expected the main interpreter of a process; use "
                "run_ranks for ranks that are threads, or multiprocessing with the spawn method"
            )
        return


def _refuse_old_processor(path="/proc/cpuinfo"):
    """Raises ImportError on a processor that lacks instructions of the library, which would end the
    process when it is loaded."""
    if os.uname().machine != "x86_64":
        return
    try:
        with open(path) as lines:
            flags = next((set(line.split()) for line in lines if line.startswith("flags")), None)
    except OSError:
        return
    missing = [] if flags is None else [flag for flag in _X86_64_V3 if flag not in flags]
    if missing:
        raise ImportError(
            f"weft: this processor lacks {', '.join(missing)}, expected x86-64-v3 or newer"
        )


def _is_openmp_loaded():
    try:
        with open("/proc/self/maps") as maps:
            return any("/libgomp.so.1" in line for line in maps)
    except OSError:
        return False


def _is_guest():
    """Returns whether the program has initialised MPI; the environment and OpenMP then stay as they
    are."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and mpi.Is_initialized()


def _free_cores():
    """This process's cores that no other thread wants now, at least half of them: its share of the
    machine's load, whose threads may run on other cores."""
    cores = len(os.sched_getaffinity(0))
    try:
        with open("/proc/loadavg") as load:
            running = int(load.read().split()[3].split("/")[0])
    except (OSError, ValueError, IndexError):
        return cores
    share = min(1, cores / (os.cpu_count() or cores))
    return max((cores + 1) // 2, cores - math.ceil(max(0, running - 1) * share))


def _set_fewer_threads(module):
    """Returns the number of threads, or 0 when all cores are free."""
    free = _free_cores()
    if free >= module.get_num_threads():
        return 0
    module.set_num_threads(free)
    return free


def _load_cuda():
    """Loads libweft.so of the package weft_cuda, if it is installed. The compiled module then uses
    that one, which has the same soname."""
    spec = importlib.util.find_spec("weft_cuda")
    if spec is None:
        return
    import ctypes
    import pathlib

    for library in pathlib.Path(spec.origin).parent.glob("lib/libweft.so.*"):
        ctypes.CDLL(str(library))


def _load():
    """Returns how many threads this process uses because other programs run; 0: as many as ever."""
    _refuse_subinterpreter()
    _refuse_old_processor()
    is_chosen = any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"))
    is_guest = _is_guest()
    if is_chosen or is_guest or _is_openmp_loaded():
        _load_cuda()
        from weft import _weft

        if not is_chosen and not is_guest and not os.environ.get("OMP_NUM_THREADS"):
            return _set_fewer_threads(_weft)
        return 0
    # It is not in os.environ: children do not inherit it.
    os.putenv("OMP_WAIT_POLICY", "passive")
    try:
        _load_cuda()
        importlib.import_module("weft._weft")
    finally:
        os.unsetenv("OMP_WAIT_POLICY")
    return 0


fewer_threads = _load()
