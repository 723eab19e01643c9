# SPDX-License-Identifier: Apache-2.0
"""One case: a configuration and one to three faults drawn at random, their runs, and what the laws
say of them."""
import json
import math
import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

from laws import (Finding, differs, is_whole, judge_checkpoints, judge_end, judge_last,
                  judge_metrics, judge_saved, read_file, steps_in, tail)
from runs import Action, Plan, Settings, changed, metrics_of, run
from table import FAULTS, mount, unmount

WAYS = ("threads", "processes", "mpirun")
LAYOUTS = {
    1: [("", "full_shard"), ("", "ddp")],
    2: [("", "full_shard"), ("", "ddp"), ("", "zero2"), ("dp=1,tp=2", "full_shard")],
    3: [("", "full_shard"), ("", "ddp"), ("", "zero2")],
    4: [("", "full_shard"), ("replicate=2,shard=2", "hsdp"), ("dp=2,tp=2", "full_shard")],
}


class Case:
    """Drawn from the seed and the number alone."""

    def __init__(self, world, seed, number, only=None):
        self.rng = rng = random.Random(f"{seed}:{number}")
        self.name = f"{seed}:{number}"
        self.program, self.shims, self.inputs = world.program, world.shims, world.inputs
        self.references, self.lease = world.references, world.lease
        self.folder = world.folder / f"case-{seed}-{number}"
        self.disk = self.folder / "disk"
        self.ck = self.disk / "ck"
        self.can_mount, self.has_mpirun = world.can_mount, world.has_mpirun
        self.draw_configuration(only)
        self.excused, self.announced, self.after_run, self.findings = set(), [], [], []
        self.has_reference, self.other, self.foreign, self.mounted = True, None, None, False
        self.foreign_is_early = False
        self.words, self.commands = [], []
        self.rows = self.draw_rows(only)

    def draw_configuration(self, only):
        rng = self.rng
        weights = (60, 36, 4 if self.has_mpirun else 0)
        self.way = rng.choices(WAYS, weights)[0]
        if only and self.way not in FAULTS[only].ways:
            self.way = FAULTS[only].ways[0]
        ranks = rng.randint(1, 4) if self.way == "threads" else rng.randint(2, 3)
        mesh, strategy = rng.choice(LAYOUTS[ranks])
        self.settings = Settings(
            ranks=ranks, mesh=mesh, strategy=strategy, dtype=rng.choice(["f32", "f32", "bf16"]),
            accumulate=rng.choice([1, 1, 2]), steps=rng.choice([6, 10]),
            init=rng.choice(["", "", "", "init-a"]))
        self.save_every, self.keep = rng.randint(1, 3), rng.choice([0, 0, 1, 2])

    def draw_rows(self, only):
        if only:
            return [FAULTS[only]]
        fitting = [f for f in FAULTS.values()
                   if f.fits(self) and (f.row != "full-disk" or self.can_mount)]
        rows = []
        # A draw without replacement by weights.
        for f in sorted(fitting, key=lambda f: -(self.rng.random() ** (1 / f.weight))):
            clash = any(f.group == other.group or f.alone or other.alone for other in rows)
            if not clash:
                rows.append(f)
            if rows[0].alone or len(rows) == 3:
                break
        return rows[:self.rng.choices((1, 2, 3), (5, 3, 2))[0]]

    # --- what faults ask for

    def plan(self, name, settings, resumes):
        flags = settings.flags(self.inputs) | {
            "--save": str(self.ck), "--save-every": str(self.save_every), "--keep": str(self.keep),
            "--metrics": str(self.folder / f"{name}.jsonl")} | self.lease
        if resumes:
            flags["--resume"] = str(self.ck)
        return Plan(settings, self.way, name, flags)

    def change(self, plan, **what):
        """Other settings for the whole case."""
        self.settings = plan.settings = changed(self.settings, **what)
        for name, value in self.settings.flags(self.inputs).items():
            if name not in ("--data", "--model", "--init") or name not in plan.flags:
                plan.flags[name] = value

    def use_large_data(self, plan):
        self.settings = plan.settings = changed(self.settings, data="large")
        plan.flags["--data"] = self.settings.flags(self.inputs)["--data"]

    def mount(self, kibibytes):
        self.mounted = mount(self.disk, kibibytes)

    # --- the runs

    def execute(self):
        self.folder.mkdir(parents=True)
        self.disk.mkdir()
        try:
            self.execute_runs()
        finally:
            if self.mounted:
                unmount(self.disk)
        return self.findings

    def apply(self, when, plan):
        """Applies the faults of these kinds; returns them."""
        found = [f for f in self.rows if f.when in when]
        for f in found:
            self.words.append(f"{f.row} ({f.apply(self, plan, self.rng)})")
        return found

    def execute_runs(self):
        first = self.plan("first", self.settings, resumes=False)
        before = self.apply(("before",), first)
        faults = self.apply(("start", "during"), first)
        damages = any(f.when in ("between", "resume") for f in self.rows)
        if damages and not first.actions:
            self.interrupt(first)
        harmless = bool(faults) and not before and all(f.harmless for f in faults)
        self.do(first, must_pass=harmless and not damages)
        if not self.has_reference:
            return
        if damages:
            second = self.plan("second", self.settings, resumes=True)
            if first.flags["--data"].startswith(str(self.folder)):
                second.flags["--data"] = first.flags["--data"]
            self.apply(("between",), second)
            # If there is nothing to resume, it is a new run, which may have other settings.
            faults = self.apply(("resume",), second) if self.good(self.settings) else []
            # A damaged state may be refused; one that is only resumed has to go on.
            has_room = not self.mounted
            self.do(second, must_pass=has_room and not faults and not self.may_refuse())
        self.do_last()

    def interrupt(self, plan):
        """Ends the first run early, so that there is something to resume."""
        number, who = self.rng.choice([(9, "job"), (12, "launcher"), (12, "launcher")])
        lines = self.rng.randint(1, plan.settings.steps - 1)
        plan.actions.append(Action(f"signal {number} to {who}", lines, 0,
                                   lambda job: job.send(who, number)))

    def do_last(self):
        """The run without faults."""
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", self.disk], check=False)
        foreign_is_there = self.foreign is not None and self.foreign.exists()
        hidden = foreign_is_there and self.foreign_is_early and self.first_code == 0
        if foreign_is_there and not hidden:
            shutil.rmtree(self.foreign)
        settings = self.settings_of_last()
        last = self.plan("last", settings, resumes=True)
        self.do(last, must_pass=not self.may_refuse())

    def settings_of_last(self):
        """The settings of the job that saved."""
        own = any(path in steps_in(self.ck) for path in self.announced)
        if self.other is not None and not own and self.other.outcome.saved():
            return self.other.plan.settings
        return self.settings

    def good(self, settings):
        """{path: step} of what a restart has to find."""
        reference = self.references.of(settings)
        return {path: step for path, step in steps_in(self.ck).items()
                if path not in self.excused and is_whole(path) and not differs(reference, path)}

    def may_refuse(self):
        """True when all that is left is damaged."""
        damaged = any(path in self.excused and path != self.foreign for path in steps_in(self.ck))
        return damaged and not self.good(self.settings)

    def do(self, plan, must_pass):
        """Runs it and judges it."""
        good = self.good(plan.settings) if plan.name == "last" else {}
        outcome = run(plan, self.program, self.folder)
        if plan.name == "first":
            self.first_code = outcome.code
        self.commands.append(outcome)
        for undo in self.after_run:
            undo()
        self.after_run.clear()
        self.findings += judge_end(outcome)
        if self.other is not None and plan.name == "first":
            self.judge_other(outcome)
        if not self.has_reference:
            self.findings += self.judge_non_finite(outcome)
            return
        reference = self.references.of(plan.settings)
        if plan.flags.get("--resume") or not self.announced:
            self.announced += [Path(path) for path in outcome.saved()]
        if self.other is None or plan.name == "last":
            beside = self.keep + (1 if self.keep > 0 and outcome.code == 0 else 0)
            self.findings += judge_saved(self.announced_of(plan), reference, self.ck, beside,
                                         self.excused)
        if outcome.code == 0:
            self.judge_success(outcome, reference)
        elif must_pass and outcome.code is not None:
            self.findings.append(Finding("L3", f"the {plan.name} run should go on, but exits with "
                                               f"{outcome.code}: {tail(outcome)}"))
        if plan.name == "last" and outcome.code == 0:
            newest = max(good.values(), default=0)
            if outcome.resumed_step() < newest:
                self.findings.append(Finding(
                    "L3", f"the restart resumes after step {outcome.resumed_step()}, though step "
                          f"{newest} is complete: {tail(outcome)}"))

    def announced_of(self, plan):
        """Returns the checkpoints that this run's reference can judge."""
        if plan.settings == self.settings:
            return self.announced
        return [Path(path) for path in self.commands[-1].saved()]

    def judge_success(self, outcome, reference):
        plan = outcome.plan
        metrics = Path(plan.flags["--metrics"])
        self.findings += judge_metrics(outcome, reference, metrics)
        excused = set(self.excused)
        if self.other is not None:
            excused |= {Path(path) for path in self.other.outcome.saved()}
            excused |= {path for path in steps_in(self.ck) if plan.name == "first"}
        self.findings += judge_checkpoints(outcome, reference, self.ck, excused)
        if self.other is None or plan.name == "last":
            self.findings += judge_last(outcome, reference, self.ck, self.excused)
        trace = plan.flags.get("--trace")
        if trace:
            self.findings += self.judge_trace(Path(trace))

    @staticmethod
    def judge_trace(path):
        if not path.is_file():
            yield Finding("L1", f"exit code 0, but {path} is no file with a trace")
            return
        try:
            json.loads(path.read_text())
        except (OSError, ValueError) as error:
            yield Finding("L1", f"exit code 0, but the trace cannot be read: {error}")

    def judge_other(self, outcome):
        """Two jobs in one directory: one of them saves."""
        self.other.wait()
        other = self.other.finish()
        self.commands.append(other)
        self.findings += judge_end(other)
        if other.code == 0:
            reference = self.references.of(other.plan.settings)
            metrics = Path(other.plan.flags["--metrics"])
            self.findings += judge_metrics(other, reference, metrics)
        if other.plan.settings != outcome.plan.settings and other.saved() and outcome.saved():
            self.findings.append(Finding(
                "L3", "two jobs of different seeds both announced saves in one directory, exit "
                      f"codes {outcome.code} and {other.code}"))

    def judge_non_finite(self, outcome):
        """Judges without a reference: whatever exits with 0 or is announced has finite numbers."""
        announced = {Path(path) for path in outcome.saved()}
        paths = set(steps_in(self.ck)) if outcome.code == 0 else announced
        for path in sorted(paths):
            if is_whole(path) and (name := first_non_finite(path)):
                yield Finding("L1", f"{path.name} was saved with exit code {outcome.code}, but "
                                    f"{name} is not finite")
        if outcome.code == 0:
            lines = metrics_of(Path(outcome.plan.flags["--metrics"]))
            if lines and not all(isinstance(x, float) and math.isfinite(x) for x in lines[-1][1:]):
                yield Finding("L1", f"exit code 0, but the last metrics are {lines[-1]}")

    def describe(self):
        s = self.settings
        layout = f"{s.ranks} {self.way} {s.mesh or 'dp'} {s.strategy} {s.dtype} x{s.accumulate}"
        return (f"{layout}{' init' if s.init else ''}, {s.steps} steps, every {self.save_every}, "
                f"keep {self.keep}: {'; '.join(self.words)}")


def first_non_finite(checkpoint):
    """The first float tensor of a checkpoint with such an element, or ""."""
    for path in sorted(checkpoint.iterdir()):
        if not re.match(r"rank-.*\.safetensors$", path.name):
            continue
        data = path.read_bytes()
        start = 8 + struct.unpack_from("<Q", data)[0]
        for name, dtype, _, (begin, end) in read_file(path)[1]:
            code = {"F32": "f", "F64": "d"}.get(dtype)
            if code is None:
                continue
            values = struct.unpack(f"<{(end - begin) // struct.calcsize(code)}{code}",
                                   data[start + begin:start + end])
            if not all(map(math.isfinite, values)):
                return name
    return ""
