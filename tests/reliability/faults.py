#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts runs of `weft train` with random faults and checks three laws (laws.py) on each."""
import argparse
import concurrent.futures
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from case import Case  # noqa: E402
from laws import Finding, References  # noqa: E402
from runs import Plan, Settings, run  # noqa: E402
from table import FAULTS, mount, unmount  # noqa: E402

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 259, "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
}
EPILOG = """\
A case is drawn from the seed and its number alone; only the moments of signals vary with the
machine. Each failing case is one line, with the flags that run it again. Exit codes: 0 no law was
broken, 1 one was, 2 a flag is wrong or the program cannot be started."""


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG)
    parser.add_argument("--program", type=Path, help="weft; its build has the shims in lib/")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--seconds", type=float, help="start no case after so many seconds")
    parser.add_argument("--only", choices=sorted(FAULTS), metavar="ROW", help="faults of one row")
    parser.add_argument("--replay", metavar="SEED:CASE", help="run one case, and say all of it")
    parser.add_argument("--until-found", action="store_true", help="end at the first finding")
    parser.add_argument("--keep-failures", type=Path, metavar="DIR", help="their files go there")
    parser.add_argument("--list", action="store_true", help="print the rows and what they do")
    options = parser.parse_args(arguments)
    if options.replay:
        try:
            seed, number = options.replay.split(":")
            options.seed, options.first, options.cases = int(seed), int(number), 1
        except ValueError:
            parser.error(f"--replay is {options.replay}, expected SEED:CASE")
    if not options.list and not options.program:
        parser.error("--program is missing")
    for flag in ("cases", "jobs"):
        if getattr(options, flag) < 1:
            parser.error(f"--{flag} is {getattr(options, flag)}, expected at least 1")
    return options


class World:
    """State that all cases share: the program, its inputs, references."""

    def __init__(self, program, folder):
        self.program, self.folder = program.resolve(), folder
        libraries = self.program.parent.parent / "lib"
        self.shims = {"disk": libraries / "libweft_crash_shim.so",
                      "clock": libraries / "libweft_clock_shim.so"}
        for path in (self.program, *self.shims.values()):
            if not path.exists():
                raise SystemExit(f"faults: {path} is missing; build weft_program, weft_crash_shim "
                                 "and weft_clock_shim")
        self.inputs = folder / "inputs"
        self.references = References(self.program, folder, self.inputs)
        self.has_mpirun = shutil.which("mpirun") is not None
        self.can_mount = os.geteuid() == 0 and mount(folder / "mount", 64)
        if self.can_mount:
            unmount(folder / "mount")
        help_text = subprocess.run([self.program, "train", "--help"], check=False, text=True,
                                   capture_output=True).stdout
        # A run waits for a lease whose owner cannot be asked; briefly, so that runs are not slow.
        self.lease = {"--lease-seconds": "2"} if "--lease-seconds" in help_text else {}
        self.write_inputs()

    def write_inputs(self):
        self.inputs.mkdir()
        words = ["the ", "quick ", "brown ", "fox ", "jumps ", "over\n"]
        for name, seed, size in (("plain", 1, 5000), ("other", 2, 5000), ("large", 3, 1_300_000)):
            rng = random.Random(seed)
            text = "".join(rng.choices(words, k=size // 3))[:size]
            (self.inputs / name).mkdir()
            (self.inputs / name / "text").write_text(text)
        (self.inputs / "config.json").write_text(json.dumps(MODEL))
        (self.inputs / "config-b.json").write_text(json.dumps(MODEL | {"rope_theta": 500.0}))
        for name, seed in (("init-a", 11), ("init-b", 12)):
            folder = self.folder / name
            folder.mkdir()
            flags = Settings(seed=seed, steps=1).flags(self.inputs) | {"--save": str(folder / "ck")}
            done = run(Plan(Settings(), "threads", "init", flags), self.program, folder)
            export = [self.program, "ckpt", "export", folder / "ck", self.inputs / name]
            exported = subprocess.run(export, check=False, capture_output=True)
            if done.code != 0 or exported.returncode != 0:
                raise SystemExit(f"faults: the initial weights were not made: {done.stderr}")


def run_case(world, options, number):
    """(case, findings); an error of this program is a finding too."""
    case = Case(world, options.seed, number, options.only)
    try:
        findings = case.execute()
    except Exception:  # noqa: BLE001: whatever it is, the other cases go on
        findings = [*case.findings, Finding("faults.py", traceback.format_exc())]
    if findings and options.keep_failures:
        to = options.keep_failures / case.folder.name
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(case.folder, to, symlinks=True)
    return case, findings


def say_all(case):
    print(case.describe())
    for outcome in case.commands:
        extra = outcome.plan.environment | {"LD_PRELOAD": " ".join(map(str, outcome.plan.preload))}
        print(f"--- {outcome.plan.name}: exit code {outcome.code}, {outcome.seconds:.2f} s, "
              f"done: {outcome.done}, environment: {extra}")
        print(" ".join(outcome.command))
        print(outcome.stdout + outcome.stderr, end="")


class Report:
    """Prints each finding at once, and the progress on a terminal."""

    def __init__(self, options):
        self.options, self.cases, self.failed, self.rows = options, 0, 0, {}
        self.started = time.monotonic()

    def add(self, case, findings):
        self.cases += 1
        for f in case.rows:
            self.rows[f.row] = self.rows.get(f.row, 0) + 1
        if findings:
            self.failed += 1
            only = f" --only {self.options.only}" if self.options.only else ""
            print(f"\r{findings[0]}\n  case {case.name}: {case.describe()}\n"
                  f"  again: --replay {case.name}{only}", flush=True)
            for finding in findings[1:4]:
                print(f"  also {finding}")
        if sys.stderr.isatty():
            print(f"\r{self.cases}/{self.options.cases} cases, {self.failed} failed, "
                  f"{self.rate():.1f} a second ", end="", file=sys.stderr, flush=True)

    def rate(self):
        return self.cases / max(1e-3, time.monotonic() - self.started)

    def finish(self):
        drawn = len(self.rows)
        print(f"{self.cases} cases of {drawn} rows, seed {self.options.seed}: {self.failed} failed,"
              f" {self.rate():.1f} cases a second")


def run_all(world, options):
    report = Report(options)
    numbers = iter(range(options.first, options.first + options.cases))
    is_over = [False]

    def work():
        for number in numbers_of(numbers):
            late = options.seconds and time.monotonic() - report.started > options.seconds
            if late or is_over[0]:
                return
            case, findings = run_case(world, options, number)
            results.append((case, findings))
            is_over[0] |= bool(findings) and options.until_found
            if options.replay:
                say_all(case)
            report.add(case, findings)
            shutil.rmtree(case.folder, ignore_errors=True)

    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(work) for _ in range(options.jobs)]:
            done.result()
    report.finish()
    return 1 if report.failed else 0


def numbers_of(iterator):
    """The next ones, for several threads: `next` on a range's iterator is atomic."""
    while (number := next(iterator, None)) is not None:
        yield number


def main(arguments):
    options = parsed(arguments)
    if options.list:
        for f in FAULTS.values():
            print(f"{f.row:24} {f.when:8} {f.apply.__doc__}")
        return 0
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="weft-faults-", dir=where))
    try:
        return run_all(World(options.program, folder), options)
    except SystemExit as error:
        print(error.code, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
