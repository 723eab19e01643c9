#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs bench_cuda and torch_cuda.py alternately and prints a table that compares their steps.

    python benchmarks/cuda_rounds.py build/gpu/bin/bench_cuda --out lines.jsonl

A round trains without the engine, with it, and in PyTorch, eager and compiled; the table has the
median, minimum and maximum over the rounds. Before the rounds the kernels run, compared with the
rate of a copy, with direct library calls, and with PyTorch's ops. All lines go to --out. Without
PyTorch the table contains only weft.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def lines_of(command, out):
    """Runs a program; returns its JSON lines and writes them to `out`. Prints why it fails."""
    print(" ".join(map(str, command)), file=sys.stderr, flush=True)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{' '.join(map(str, command))}: exit code {done.returncode}", file=sys.stderr)
        print(done.stderr[-2000:], file=sys.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
        out.flush()
    return lines


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def cell(lines, key, digits):
    """The median, with the minimum and maximum if they differ."""
    numbers = [line[key] for line in lines if line.get(key) is not None]
    if not numbers:
        return "-"
    middle, least, most = statistics.median(numbers), min(numbers), max(numbers)
    text = f"{middle:.{digits}f}"
    return text if least == most else f"{text} ({least:.{digits}f} to {most:.{digits}f})"


def print_rows(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def print_kernels(lines, theirs):
    """`theirs`: PyTorch's microseconds by case; the others are compared with direct calls."""
    rows = [("kernel", "rate", "of the copy", "x the library", "x PyTorch")]
    for line in lines:
        if line["unit"] in ("GB/s", "TFLOP/s"):
            fraction, times = line.get("fraction_of_copy"), line.get("times_the_library")
            torch = line["case"] in theirs and theirs[line["case"]] / line["median_us"]
            rate = f"{line['value']} {line['unit']}"
            told = (f"{number:.3f}" if number else "-" for number in (fraction, times, torch))
            rows.append((line["case"], rate, *told))
    print_rows(rows)


def print_training(lines):
    cases = {}
    for line in lines:
        if line["unit"] == "tokens/s":
            cases.setdefault((line["bench"], line["case"]), []).append(line)
    rows = [("step", "tokens/s", "MFU", "step ms", "queued ms", "peak GB")]
    for (bench, case), of_case in cases.items():
        for line in of_case:
            line["peak_gb"] = line["peak_bytes"] and line["peak_bytes"] / 1e9
        name = f"{'weft' if bench == 'weft_cuda' else 'PyTorch'}: {case}"
        keys = (("value", 0), ("mfu", 3), ("step_ms", 1), ("queued_ms", 1), ("peak_gb", 1))
        rows.append((name, *(cell(of_case, key, digits) for key, digits in keys)))
    print_rows(rows)
    rates = {key: statistics.median(line["value"] for line in of) for key, of in cases.items()}
    ours = {key: rate for key, rate in rates.items() if key[0] == "weft_cuda"}
    theirs = {key: rate for key, rate in rates.items() if key[0] != "weft_cuda"}
    for (_, case), rate in ours.items():
        for (_, other), its_rate in theirs.items():
            print(f"weft: {case} / PyTorch: {other} = {rate / its_rate:.3f}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bench", help="the program bench_cuda")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", help="file for all lines")
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    parser.add_argument("--torch-device", default="cuda")
    parser.add_argument("--modes", default="eager,compile", help="PyTorch's; none: weft alone")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that all runs")
    args = parser.parse_args()
    smoke = ["--smoke"] if args.smoke else []
    out = open(args.out, "w") if args.out else None
    parts = [args.bench, "--parts", "rows,products,attention", *smoke]
    device, *kernels = lines_of(parts, out) or [{}]
    training, modes = [], [mode for mode in args.modes.split(",") if mode]
    if modes and not has_torch(args.python):
        print(f"{args.python} has no PyTorch: weft alone", file=sys.stderr)
        modes = []
    theirs = [args.python, HERE / "torch_cuda.py", "--device", args.torch_device, *smoke]
    kernels_of_torch = {}
    if modes and args.torch_device == "cuda" and not smoke:
        of_torch = lines_of([*theirs, "--mode", "kernels"], out)
        kernels_of_torch = {line["case"]: line["value"] for line in of_torch}
    for _ in range(args.rounds):
        for part in ("train", "train_engine"):
            training += lines_of([args.bench, "--parts", part, *smoke], out)[1:]
        peak = next((line["peak_tflops"] for line in training if line.get("peak_tflops")), 0)
        for mode in modes:
            training += lines_of([*theirs, "--mode", mode, "--peak-tflops", str(peak)], out)
    print(f"{device.get('value', 'no device')}; {args.rounds} rounds in turn")
    print_kernels(kernels, kernels_of_torch)
    print_training(training)
    sys.exit(0 if kernels and len(training) == args.rounds * (2 + len(modes)) else 1)


if __name__ == "__main__":
    main()
