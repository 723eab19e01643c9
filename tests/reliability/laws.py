# SPDX-License-Identifier: Apache-2.0
"""The three laws, and what a run without faults computes and saves.

L1  A run that exits with 0 has no wrong number: its metrics and all its checkpoints are the
    reference's, bit by bit.
L2  A run ends: not later than its deadline and a slack, without a crash, with no process left.
L3  What was announced as saved ("saved PATH", or exit code 0 with --save) is not lost, and the run
    goes on from it to the reference's last weights.
"""
import hashlib
import json
import re
import shutil
import struct
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from runs import SLACK, Plan, metrics_of, run

NAME = re.compile(r"^step-(\d{8,})-[0-9a-f]{16}$")
FILE = re.compile(r"^rank-(\d{5})-of-(\d{5})\.safetensors$")
# Numbers of a checkpoint that follow from the run alone.
NUMBERS = ("optimizer/", "random/", "step/", "config/")


@dataclass(frozen=True)
class Finding:
    """A law that was broken."""
    law: str
    what: str

    def __str__(self):
        return f"{self.law}: {self.what}"


def read_file(path):
    """(manifest, tensors, digest of the data) of a rank's file. Throws ValueError."""
    data = path.read_bytes()
    try:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + length])
        manifest = json.loads(header.pop("__metadata__")["weft"])
    except (struct.error, KeyError, TypeError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{path.name} has no header: {error}") from error
    tensors = tuple(sorted((name, t["dtype"], tuple(t["shape"]), tuple(t["data_offsets"]))
                           for name, t in header.items()))
    return manifest, tensors, hashlib.sha256(data[8 + length:]).hexdigest()


def contents(path):
    """Returns what a checkpoint says and holds, or None if files are missing. Throws ValueError."""
    files = {entry.name: entry for entry in path.iterdir() if FILE.match(entry.name)}
    if not files:
        return None
    ranks = int(FILE.match(min(files))[2])
    if len(files) < ranks:
        return None
    found, numbers, step = {}, {}, None
    for name in sorted(files):
        manifest, tensors, digest = read_file(files[name])
        found[name] = (tensors, digest)
        step = manifest["step"]
        numbers = {key: value for key, value in manifest["numbers"].items()
                   if key.startswith(NUMBERS)}
    return step, found, numbers


def steps_in(directory):
    """{path: step by its name} of the checkpoints there."""
    if not directory.is_dir():
        return {}
    return {entry: int(NAME.match(entry.name)[1]) for entry in directory.iterdir()
            if NAME.match(entry.name) and entry.is_dir()}


@dataclass
class Reference:
    """A run without faults: what its checkpoints hold by step, and its metrics by step."""
    folder: Path
    checkpoints: dict
    metrics: dict
    program: Path

    def differs(self, path):
        """Returns why this complete checkpoint is not the reference's, or "". Throws ValueError."""
        held = contents(path)
        if held is None:
            return "files are missing"
        step, files, numbers = held
        if step not in self.checkpoints:
            return f"step {step} is none of the run"
        own = self.checkpoints[step]
        if own[1].keys() != files.keys():
            # A job that went on with another number of ranks.
            return self.differs_over_ranks(path, step)
        for name, (tensors, digest) in files.items():
            if own[1].get(name, (None, None))[0] != tensors:
                return f"{name} holds other tensors than the reference's step {step}"
            if own[1][name][1] != digest:
                return f"{name} holds other bytes than the reference's step {step}"
        other = {key for key in own[2].keys() | numbers.keys()
                 if own[2].get(key) != numbers.get(key)}
        return f"numbers differ from the reference's: {sorted(other)[:3]}" if other else ""

    def differs_over_ranks(self, path, step):
        done = subprocess.run([self.program, "ckpt", "diff", self.path_of(step), path], check=False,
                              text=True, capture_output=True)
        # Numbers of the run are those of its flags, such as the mesh.
        lines = [line for line in done.stdout.splitlines()[:-1]
                 if not line.startswith("number run/")]
        return f"it differs: {lines[:2]}" if lines or done.returncode > 1 else ""

    def path_of(self, step):
        return next(p for p, s in steps_in(self.folder / "disk" / "ck").items() if s == step)


class References:
    """References by settings, each run once."""

    def __init__(self, program, folder, inputs):
        self.program, self.folder, self.inputs = program, folder, inputs
        self.lock, self.made = threading.Lock(), {}

    def of(self, settings):
        with self.lock:
            entry = self.made.setdefault(settings, [threading.Lock(), None])
        with entry[0]:
            if entry[1] is None:
                entry[1] = self.make(settings)
        return entry[1]

    def make(self, settings):
        name = hashlib.sha256(repr(settings).encode()).hexdigest()[:12]
        folder = self.folder / f"reference-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "disk").mkdir(parents=True)
        saved, metrics = folder / "disk" / "ck", folder / "metrics.jsonl"
        flags = settings.flags(self.inputs) | {
            "--save": str(saved), "--save-every": "1", "--keep": "0", "--metrics": str(metrics)}
        outcome = run(Plan(settings, "threads", "run", flags, deadline=60), self.program, folder)
        if outcome.code != 0:
            raise SystemExit(f"faults: the reference run fails: {outcome.stderr or outcome.code}\n"
                             f"{' '.join(outcome.command)}")
        checkpoints = {}
        for path in steps_in(saved):
            held = contents(path)
            checkpoints[held[0]] = held
        by_step = {line[0]: line for line in metrics_of(metrics)}
        return Reference(folder, checkpoints, by_step, self.program)


def same(a, b):
    return repr(a) == repr(b)


def judge_metrics(outcome, reference, path):
    """L1 of the metrics, after exit code 0."""
    if not path.is_file():
        yield Finding("L1", f"exit code 0, but {path} is no file with metrics")
        return
    try:
        lines = metrics_of(path)
    except ValueError as error:
        yield Finding("L1", f"exit code 0, but {error}")
        return
    steps = [line[0] for line in lines]
    first = outcome.resumed_step() + 1
    if outcome.plan.stdout != "file" or outcome.plan.redirect or outcome.plan.rank_redirect:
        first = steps[0] if steps else first
    if outcome.plan.launch:  # a job that goes on by itself
        first = 1
    expected = list(range(first, outcome.plan.settings.steps + 1))
    if steps != expected:
        yield Finding("L1", f"exit code 0, but {path.name} has steps {steps}, not {expected}")
    for line in lines:
        if not same(line, reference.metrics.get(line[0])):
            yield Finding("L1", f"exit code 0, but {path.name} says {line} and the reference "
                                f"{reference.metrics.get(line[0])}")
            return


def judge_end(outcome):
    """L2."""
    if outcome.code is None:
        yield Finding("L2", f"still running {SLACK} s after its deadline of "
                            f"{outcome.plan.deadline} s; last: {tail(outcome)}")
    elif outcome.left:
        yield Finding("L2", f"left processes behind: {', '.join(outcome.left)}")
    if outcome.is_crash():
        yield Finding("L2", f"crashed, exit code {outcome.code}: {tail(outcome)}")


def tail(outcome):
    """The last sentences of a run on stderr, without the case's folder."""
    folder = str(Path(outcome.plan.flags["--metrics"]).parent)
    lines = [line for line in outcome.stderr.replace(f"{folder}/", "").splitlines()
             if "weft" in line and not line.startswith("weft run: the last operations")]
    return repr(" / ".join(lines[-2:])[:300])


def differs(reference, path):
    try:
        return reference.differs(path)
    except (ValueError, OSError) as error:
        return str(error)


def judge_checkpoints(outcome, reference, directory, excused):
    """L1 of all complete checkpoints, after exit code 0."""
    for path in steps_in(directory):
        if path in excused or not is_whole(path):
            continue
        if why := differs(reference, path):
            yield Finding("L1", f"exit code 0, but {path.name}: {why}")


def is_whole(path):
    """True when every file has its name; what the files hold is not looked at."""
    names = [entry.name for entry in path.iterdir() if FILE.match(entry.name)]
    return bool(names) and len(names) == int(FILE.match(names[0])[2])


def judge_saved(announced, reference, directory, keep, excused):
    """L3 of what was announced. Retention removes what has `keep` complete ones in addition to the
    newest, which a run that failed may not have completed."""
    here = steps_in(directory)
    good = {path: step for path, step in here.items()
            if path not in excused and not differs(reference, path)}
    for path in announced:
        if path in excused or path in good:
            continue
        step = int(NAME.match(path.name)[1])
        # Checkpoints that retention counted may have been damaged afterwards.
        newer = sum(1 for other in {*good, *excused} if int(NAME.match(other.name)[1]) > step)
        # A power loss may leave a part of what retention was removing.
        is_removed = path not in here or not is_whole(path)
        if is_removed and keep > 0 and newer >= keep:
            continue
        why = differs(reference, path) if path in here else "it is gone"
        yield Finding("L3", f"announced as saved, but {path.name}: {why}")


def judge_last(outcome, reference, directory, excused):
    """L3 after exit code 0: the last step exists."""
    steps = outcome.plan.settings.steps
    if any(step == steps and path not in excused and not differs(reference, path)
           for path, step in steps_in(directory).items()):
        return
    yield Finding("L3", f"exit code 0, but there is no checkpoint of the last step {steps}")
