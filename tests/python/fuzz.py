# SPDX-License-Identifier: Apache-2.0
"""Calls the functions of `weft`, `weft.torch` and `functional` and the methods of Tensor with
random arguments, in a child process.

    python tests/python/fuzz.py [--calls 1000000] [--seed 1] [--only REGEX]

Every call must return or raise one sentence. Prints the kinds of exceptions and the number of
calls, and, with exit code 1, texts of more than one line or with names of C++, and the call in
which the child crashed or never ended."""

import argparse
import collections
import inspect
import json
import math
import mmap
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings

import weft
import weft.torch

# They wait for other ranks, read files, end the process or change its state by design.
LEFT_OUT = re.compile(
    r"^(run_|connect|trace$|estimate|fake_world|load|save|export|inspect|list_ch|newest|init_dev|"
    r"release|measured|predicted|explain|visualize|recompute|set_|_|no_|enable_|inference|traffic|"
    r"all_ops|Op$|Graph|.*hugging|on_device|manual_seed|get_|launched|check_replicas|"
    r"CheckpointSaver|Communicator|DeviceMesh|cuda|register|pin)"
)
DTYPES = (weft.float32, weft.float64, weft.bfloat16, weft.int64, weft.int32, weft.uint8, weft.bool)
EXPECTED = (ValueError, TypeError, IndexError, KeyError, AttributeError, RuntimeError, MemoryError)
WORDS = ("sum", "prod", "mean", "amax", "ij,jk->ik", "ii->i", "...a->a", "float32", "", "cpu")
WORDS += ("floor", "trunc", "linear", "nearest", "fro", "left", "right", "ij", "no such word")
# One call's new tensors are to fit.
MEMORY = 6 << 30
PART = 25000
# Seconds that a call may compute, and seconds without a new call after which it counts as a hang.
LONGEST_CALL, LONGEST_WAIT = 60, 900


class Draw:
    """Random arguments."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def tensor(self):
        pick = self.random
        shape = tuple(pick.choice((0, 1, 2, 3, 5)) for _ in range(pick.randrange(4)))
        dtype = pick.choice(DTYPES)
        low, high = pick.choice(((0, 3), (-2, 3), (0, 200), (-(10**9), 10**9)))
        made = weft.randint(low, high, shape).to(dtype)
        if pick.random() < 0.2 and dtype.is_floating_point:
            made = made * pick.choice((math.inf, math.nan, 1e30))
        if made.ndim > 1 and pick.random() < 0.3:
            made = made.transpose(0, 1)
        if dtype.is_floating_point and pick.random() < 0.1:
            made.requires_grad_()
        return made

    def value(self, deep=True):
        pick = self.random
        kind = pick.randrange(12)
        if kind < 5:
            return self.tensor()
        if kind < 8:
            return pick.choice((0, 1, -1, 2, 3, 7, -4, 2**31, -(2**63), 2**62, 100))
        if kind == 8:
            return pick.choice((0.5, -1.5, math.nan, math.inf, 1e300, True, False))
        if kind == 9:
            return pick.choice((None, ..., slice(0, 2), *WORDS))
        if kind == 10 or not deep:
            return pick.choice(DTYPES)
        made = [self.value(False) for _ in range(pick.randrange(4))]
        return made if pick.random() < 0.6 else tuple(made)

    def call(self, function, words):
        pick = self.random
        given = [self.tensor()] if pick.random() < 0.9 else []
        given += [self.value() for _ in range(pick.choice((0, 0, 1, 1, 2, 3)))]
        named = {}
        for word in words:
            if pick.random() < 0.15:
                named[word] = self.value()
        return function(*given, **named)


def words_of(function):
    """The names of its arguments."""
    try:
        return [name for name in inspect.signature(function).parameters if name != "self"]
    except (TypeError, ValueError):
        head = (function.__doc__ or "").splitlines()[:1]
        return re.findall(r"[(,] \*?,? ?(\w+):", head[0]) if head else []


def functions(only):
    owners = {"weft": weft, "torch": weft.torch, "Tensor": weft.Tensor}
    owners["functional"] = weft.nn.functional
    found = {}
    for prefix, owner in owners.items():
        for name in sorted(dir(owner)):
            function = getattr(owner, name, None)
            if not callable(function) or isinstance(function, type) or LEFT_OUT.match(name):
                continue
            if inspect.ismodule(function) or not re.search(only, f"{prefix}.{name}"):
                continue
            found[f"{prefix}.{name}"] = (function, words_of(function))
    return found


def is_sentence(text):
    return bool(text) and not re.search(r"\n|weft\._weft|std::|pybind|<.* object at 0x", text)


def fuzz(calls, seed, only=".", note=lambda text: None):
    """(counts of exceptions, bad texts by function). `note` gets each call before it is made."""
    warnings.filterwarnings("ignore")
    table, draw = list(functions(only).items()), Draw(seed)
    kinds, bad = collections.Counter(), {}
    for number in range(calls):
        name, (function, words) = table[number % len(table)]
        note(f"{name} (call {number} of seed {seed})")
        try:
            draw.call(function, words)
            kinds["returned"] += 1
        except EXPECTED as raised:
            kinds[type(raised).__name__] += 1
            if not is_sentence(str(raised)):
                bad.setdefault(name, f"{type(raised).__name__}: {raised}")
        except Exception as raised:
            kinds[type(raised).__name__] += 1
            bad.setdefault(name, f"{type(raised).__name__}: {raised}")
    return kinds, bad


def child(calls, seed, only, path):
    """Runs one part, noting calls in a mapped file; prints the result."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 200) as noted:

        def note(text):
            signal.setitimer(signal.ITIMER_PROF, LONGEST_CALL)  # its signal ends the process
            noted[:] = text.encode()[:200].ljust(200)

        kinds, bad = fuzz(calls, seed, only, note)
    print(json.dumps([kinds, bad]))


def in_child(calls, seed, only="."):
    """(counts of exceptions, bad texts by function); a crash or hang is one of the bad texts."""
    with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryFile("w+") as printed:
        file.write(b" " * 200)
        file.flush()
        command = [sys.executable, __file__, "--child", file.name, "--calls", str(calls)]
        command += ["--seed", str(seed), "--only", only]
        running = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT, text=True)
        status, call = ended(running, file.name)
        printed.seek(0)
        text = printed.read()
    if status != 0:
        return collections.Counter(), {call: f"the process ended with {status} {text[-500:]}"}
    kinds, bad = json.loads(text.splitlines()[-1])
    return collections.Counter(kinds), bad


def ended(running, path):
    """The exit status, or "timeout" when one call lasts too long, and the last noted call."""
    call, since = "", time.monotonic()
    while True:
        try:
            status = running.wait(1)
        except subprocess.TimeoutExpired:
            status = None
        with open(path) as file:
            noted = file.read().strip()
        if noted != call:
            call, since = noted, time.monotonic()
        if status is None and time.monotonic() - since > LONGEST_WAIT:
            running.kill()
            running.wait()
            status = "timeout"
        if status is not None:
            return status, call


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=".")
    parser.add_argument("--child", help="the file for notes; runs here")
    given = parser.parse_args()
    if given.child:
        return child(given.calls, given.seed, given.only, given.child)
    kinds, bad = collections.Counter(), {}
    for part, first in enumerate(range(0, given.calls, PART)):
        calls = min(PART, given.calls - first)
        own_kinds, own_bad = in_child(calls, given.seed * 100000 + part, given.only)
        kinds += own_kinds
        for name, text in own_bad.items():
            if name not in bad:
                print(f"{name}: {text!r}", flush=True)
            bad.setdefault(name, text)
    print(dict(kinds), f"{given.calls} calls, {len(bad)} functions with bad texts")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
