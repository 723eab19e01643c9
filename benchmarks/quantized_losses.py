#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares validation losses of trainings in f32, with quantized wires and with Float8Linear.

Trains `tiny` with the flags of scripts/quickstart, on the C++ headers of the compiler, and prints
one JSON line for each run, and for each kind the mean over the seeds and its difference to f32.
Losses do not depend on the speed of the machine. Finished runs in --out are not repeated, and one
that a signal has stopped is resumed, so that the comparison can be continued. Exits with 1 when a
difference exceeds its bound.
"""
import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Flags of each kind of run, and the largest difference of its mean validation loss to that of f32.
KINDS = {
    "f32": ([], 0.0),
    "quantized wires": (["--gather-dtype", "int8", "--gradient-dtype", "int8"], 0.02),
    "float8": (["--float8"], 0.05),
}


def compiler_headers():
    version = subprocess.run(["g++", "-dumpversion"], check=True, capture_output=True, text=True)
    return f"/usr/include/c++/{version.stdout.strip()}"


def metrics_path(args, kind, seed):
    return args.out / f"{kind.replace(' ', '-')}-{args.steps}-{seed}.jsonl"


def final_loss(path, steps):
    """Returns the validation loss of the last step, or None when the run has not finished."""
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        report = json.loads(line)
        if report["step"] == steps:
            return report["val_loss"]
    return None


def run(args, kind, seed):
    metrics = metrics_path(args, kind, seed)
    loss = final_loss(metrics, args.steps)
    if loss is None:
        saved = metrics.with_suffix(".saved")
        command = [args.program, "train", "--data", args.data, "--model", "tiny"]
        command += ["--ranks", "4", "--threads", "1", "--batch", "8", "--seq", "256"]
        command += ["--steps", args.steps, "--seed", seed, "--deadline", 3600]
        command += ["--metrics", metrics, "--save", saved, "--resume", saved, *KINDS[kind][0]]
        subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)
        loss = final_loss(metrics, args.steps)
        shutil.rmtree(saved)
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/weft")
    parser.add_argument("--data", default=compiler_headers())
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "build/quantized_losses")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    losses = {kind: [] for kind in KINDS}
    for seed in range(1, args.seeds + 1):
        for kind, of_kind in losses.items():
            of_kind.append(run(args, kind, seed))
            line = {"case": kind, "seed": seed, "validation_loss": of_kind[-1]}
            print(json.dumps(line), flush=True)
    reference = statistics.mean(losses["f32"])
    holds = True
    for kind, of_kind in losses.items():
        mean, bound = statistics.mean(of_kind), KINDS[kind][1]
        holds = holds and abs(mean - reference) <= bound
        line = {"case": kind, "mean": mean, "difference": mean - reference, "bound": bound}
        print(json.dumps(line), flush=True)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
