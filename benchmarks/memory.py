#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times of training steps with arrays on disk, and with recomputation by a budget of memory.

  memory.py offload    with everything in memory, with each kind of array on disk, and with all of
                       them: a step should take at most 1.25 times the longer of a step in memory
                       and the bytes moved over the raw rate of the disk, which is measured too
  memory.py recompute  with what blocks save chosen by hand (none, selective, full) and by a budget:
                       a budget should be at most 3 % slower than the best of them that fits

Runs `weft train` in turns, so that changes of the machine's speed affect all alike, and prints one
JSON line for each case. value is the median time of a step over all rounds.
"""
import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCK = 4 << 20


def raw_rate(directory, total=256 << 20):
    """Bytes a second of writing a file past the page cache and reading it again."""
    block = mmap.mmap(-1, BLOCK)
    block.write(os.urandom(BLOCK))
    path = os.path.join(directory, "raw")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    try:
        begin = time.perf_counter()
        for at in range(0, total, BLOCK):
            os.pwrite(file, block, at)
        for at in range(0, total, BLOCK):
            os.preadv(file, [block], at)
        return 2 * total / (time.perf_counter() - begin)
    finally:
        os.close(file)
        os.unlink(path)


class Runs:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        text = folder / "text.txt"
        text.write_text(" ".join(f"word{i * i % 977}" for i in range(200_000)))
        a = arguments
        self.model = ["--model", a.model, "--batch", str(a.batch), "--seq", str(a.seq)]
        self.train = [a.weft, "train", "--data", str(text), "--ranks", str(a.ranks)]
        self.train += [*self.model, "--steps", str(a.steps)]

    def step_times(self, flags):
        """Seconds of the steps after the first two."""
        metrics = self.folder / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        command = [*self.train, *flags, "--metrics", str(metrics)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"memory.py: {' '.join(command)}\n{done.stdout}{done.stderr}")
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        tokens = self.arguments.batch * self.arguments.seq
        return [tokens / row["tokens_per_second"] for row in rows[2:]]

    def estimate(self, flags):
        command = [self.arguments.weft, "estimate", *self.model, "--mesh"]
        command += [f"dp={self.arguments.ranks}", "--json", *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def interleaved(self, cases):
        """The median step of each case, and the least and the most of a round."""
        times = {name: [] for name in cases}
        for _ in range(self.arguments.rounds):
            for name, flags in cases.items():
                times[name].append(statistics.median(self.step_times(flags)))
        return {name: (statistics.median(t), min(t), max(t)) for name, t in times.items()}


def report(bench, case, step, more):
    value, least, most = step
    line = {"bench": bench, "case": case, "value": round(value, 4), "unit": "s"}
    line |= {"value_min": round(least, 4), "value_max": round(most, 4)}
    print(json.dumps(line | more), flush=True)


def offload(runs, disk):
    tier = f"=disk:{disk}"
    full = ["--activation-checkpointing", "full"]
    cases = {"memory": [], "memory, full": full}
    for what in ("state", "gradients", "parameters"):
        cases[what] = ["--offload", what + tier]
    cases["activations"] = [*full, "--offload", "activations" + tier]
    every = ",".join(w + tier for w in ("state", "gradients", "parameters", "activations"))
    cases["all"] = [*full, "--offload", every]
    steps = runs.interleaved(cases)
    rate = raw_rate(disk)
    for name, flags in cases.items():
        moved = runs.estimate(flags)["disk_bytes"] * runs.arguments.ranks
        same = "memory, full" if full[0] in flags else "memory"
        bound = max(steps[same][0], moved / rate)
        more = {"bytes": moved, "raw_bytes_per_s": round(rate), "of_bound": 0}
        more["of_bound"] = round(steps[name][0] / bound, 3)
        report("offload", name, steps[name], more)


def recompute(runs, disk):
    flag = "--activation-checkpointing"
    by_hand = {name: [flag, name] for name in ("none", "selective", "full")}
    peaks = {name: runs.estimate(flags)["peak_bytes"] for name, flags in by_hand.items()}
    least, most = peaks["full"], peaks["none"]
    budgets = {}
    for share in (0, 0.25, 0.5, 0.75, 1):
        budgets[f"budget {share}"] = int(least + share * (most - least))
    cases = by_hand | {name: [flag, f"budget={size}"] for name, size in budgets.items()}
    tier = ["--offload", f"activations=disk:{disk}"]
    cases |= {f"{name}, disk": [*cases[name], *tier] for name in budgets}
    steps = runs.interleaved(cases)
    for name in cases:
        more = {"peak_bytes": peaks.get(name, 0)}
        size = budgets.get(name.removesuffix(", disk"))
        if size is not None:
            best = min(steps[hand][0] for hand in by_hand if peaks[hand] <= size)
            more = {"bytes": size, "of_best": round(steps[name][0] / best, 3)}
        report("recompute", name, steps[name], more)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bench", choices=("offload", "recompute"))
    parser.add_argument("--weft", default="build/dev/bin/weft", help="the program")
    parser.add_argument("--model", default="small")
    parser.add_argument("--batch", type=int, default=4, help="rows of a step")
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", default=".", help="folder of the files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        bench = {"offload": offload, "recompute": recompute}[arguments.bench]
        bench(Runs(arguments, Path(folder)), folder)


if __name__ == "__main__":
    main()
