#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills ranks of `weft run --redundancy host` at random moments and checks that each run goes on
at once, loses at most the step under way, ends with the bits of an uninterrupted run, and leaves
nothing."""
import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

MARK = "WEFT_KILLS_MARK"
KILLED = re.compile(r"weft run: rank (\d+) (was killed|exited)")
RESUMED = re.compile(r"resumed from (/dev/shm/\S+) after step (\d+)")
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 259, "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
}
EPILOG = """\
Half of the kills come at a moment drawn evenly over a step; the others while the files of a copy
are written, right after the optimizer's update. Every fifth kills two ranks. The last line has the
figures as JSON. Exit codes: 0 all runs went on, 1 one did not, 2 a flag is wrong."""


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--a-run", type=int, default=20, help="kills of one run")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--within", type=float, default=2, help="seconds to go on in")
    return parser.parse_args(arguments)


def marked(mark):
    """The processes of a run."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            variables = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            if f"{MARK}={mark}".encode() in variables:
                found.append(int(entry))
        except OSError:
            pass
    return found


class Run:
    """A run under way, whose output a thread reads."""

    def __init__(self, options, folder, number, steps):
        self.options, self.mark = options, f"{os.getpid()}-{number}"
        self.save, self.log = folder / f"run-{number}", []
        self.went_on, self.resumed = threading.Condition(), 0
        self.metrics = folder / f"metrics-{number}"
        self.detected = self.resumed_at = None
        train = [*train_command(options, folder, steps, self.save), "--metrics", self.metrics]
        env = os.environ | {MARK: self.mark, "TMPDIR": str(folder), "OMP_WAIT_POLICY": "passive"}
        self.process = subprocess.Popen(
            [options.program, "run", "-n", str(options.ranks), "--redundancy", "host",
             "--no-prefix", "--restarts", "100000", "--", *train], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            now = time.monotonic()
            with self.went_on:
                self.log.append(f"{now:.3f} {line}")
                if KILLED.search(line):
                    self.detected = now
                elif found := RESUMED.search(line):
                    self.resumed, self.resumed_at = int(found[2]), now
                self.went_on.notify_all()
        with self.went_on:
            self.went_on.notify_all()

    def step(self):
        """The last step that the run has written."""
        try:
            lines = self.metrics.read_bytes().rpartition(b"\n")[0].rsplit(b"\n", 1)
            return json.loads(lines[-1])["step"]
        except (OSError, ValueError):
            return 0

    def wait_for_step(self, step):
        until = time.monotonic() + 60
        while self.step() < step and time.monotonic() < until and self.process.poll() is None:
            time.sleep(0.002)
        return self.step() >= step

    def wait_for(self, condition, seconds):
        with self.went_on:
            self.went_on.wait_for(lambda: condition() or not self.reader.is_alive(), seconds)
            return condition()

    def ranks(self):
        """The processes of the ranks, of which the launcher is the parent."""
        try:
            text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except OSError:
            return []
        return [int(pid) for pid in text.split()]

    def copies(self):
        job = f"weft-job-{os.getuid()}-{self.process.pid}-*"
        for folder in Path("/dev/shm").glob(f"{job}/copies/*"):
            return folder
        return None


def train_command(options, folder, steps, save):
    return [options.program, "train", "--data", folder / "text", "--model",
            folder / "config.json", "--tokenizer", "bytes", "--reproducible", "--seq", "8",
            "--batch", "4", "--threads", "1", "--schedule", "constant", "--validate-every",
            "100000", "--steps", str(steps), "--deadline", "60", "--save", save]


def names_of_copies(folder):
    """{copy: number of whole files}"""
    found = {}
    try:
        for entry in os.scandir(folder):
            if entry.name.startswith("step-"):
                files = [name for name in os.listdir(entry.path) if not name.startswith(".")]
                found[entry.name] = len(files)
    except OSError:
        pass
    return found


def wait_for_update(run, rng):
    """Returns while the next copy is written: its folder exists, and lacks files."""
    folder = run.copies()
    before = set(names_of_copies(folder)) if folder else set()
    until, files = time.monotonic() + 5, rng.randrange(run.options.ranks)
    while folder and time.monotonic() < until:
        for name, count in names_of_copies(folder).items():
            if name not in before and files <= count < run.options.ranks:
                return True
        time.sleep(0)
    return False


def kill_once(run, rng, number, figures):
    """Kills, waits until the run goes on, and returns what is wrong, or ""."""
    start = run.step()
    if not run.wait_for_step(max(2, start + 1)):
        return f"the run does not go on after step {start}"
    aimed = number % 2 == 1 and wait_for_update(run, rng)
    if not aimed:
        time.sleep(rng.uniform(0, 0.06))
    pids = run.ranks()
    if len(pids) != run.options.ranks:
        return f"there are {len(pids)} ranks"
    chosen = rng.sample(pids, 2 if number % 5 == 4 else 1)
    with run.went_on:
        run.detected = run.resumed_at = None
    for pid in chosen:
        os.kill(pid, signal.SIGKILL)
    done = run.step()
    if not run.wait_for(lambda: run.resumed_at is not None and run.detected is not None, 60):
        return "the run is not resumed"
    figures["aimed"] += aimed
    figures["two"] += len(chosen) == 2
    figures["lost"].append(done - run.resumed)
    figures["seconds"].append(run.resumed_at - run.detected)
    # A step counts as done when it is written, which is before its copy.
    if done - run.resumed > 1:
        return f"step {done} was done, but the run is resumed after step {run.resumed}"
    if figures["seconds"][-1] > run.options.within:
        return f"the run went on {figures['seconds'][-1]:.2f} s after the death was noticed"
    return ""


def is_left(run):
    """Lists the processes that the run left, and files in the memory of the host."""
    until = time.monotonic() + 5
    while (left := marked(run.mark)) and time.monotonic() < until:
        time.sleep(0.02)
    files = [entry for entry in os.listdir("/dev/shm")
             if entry.startswith(f"weft-job-{os.getuid()}-{run.process.pid}-")]
    return [*map(str, left), *files]


def one_run(options, folder, number, kills, whole, figures, rng):
    run = Run(options, folder, number, options.steps)
    findings = []
    for _ in range(kills):
        mistake = kill_once(run, rng, figures["kills"], figures)
        figures["kills"] += 1
        if mistake:
            findings.append(f"run {number}, kill {figures['kills']}: {mistake}")
            print(f"{time.monotonic():.3f} {findings[-1]}", flush=True)
        if run.process.poll() is not None:
            break
    code = run.process.wait()
    run.reader.join()
    if code != 0:
        findings.append(f"run {number} exits with {code}")
    else:
        diff = subprocess.run([options.program, "ckpt", "diff", whole, run.save], check=False,
                              text=True, capture_output=True)
        if " 0 differences" not in diff.stdout:
            said = diff.stdout[-300:] + diff.stderr[-300:]
            findings.append(f"run {number} has other bits: {said}")
    if left := is_left(run):
        findings.append(f"run {number} left {left}")
    if findings:
        print("".join(run.log[-60:]), end="")
    shutil.rmtree(run.save, ignore_errors=True)
    return findings


def main(arguments):
    options = parsed(arguments)
    rng = random.Random(options.seed)
    # Each kill waits for a step, and the run may do some more until it comes.
    options.steps = 20 * min(options.kills, options.a_run) + 20
    figures = {"kills": 0, "aimed": 0, "two": 0, "lost": [], "seconds": []}
    findings = []
    with tempfile.TemporaryDirectory(prefix="weft-kills-") as name:
        folder = Path(name)
        (folder / "text").write_text("the quick brown fox " * 400)
        (folder / "config.json").write_text(json.dumps(MODEL))
        whole = folder / "whole"
        reference = [*train_command(options, folder, options.steps, whole), "--ranks",
                     str(options.ranks)]
        subprocess.run(reference, check=True, capture_output=True)
        number = 0
        while figures["kills"] < options.kills and len(findings) < 10:
            left = min(options.a_run, options.kills - figures["kills"])
            findings += one_run(options, folder, number, left, whole, figures, rng)
            number += 1
            if sys.stderr.isatty():
                print(f"\r{figures['kills']} kills ", end="", file=sys.stderr, flush=True)
    for finding in findings:
        print(finding)
    seconds = sorted(figures["seconds"]) or [0]
    print(json.dumps({
        "kills": figures["kills"], "in_updates": figures["aimed"], "of_two": figures["two"],
        "runs": number, "findings": len(findings),
        "most_steps_lost": max(figures["lost"], default=0),
        "kills_that_lost_a_step": sum(lost > 0 for lost in figures["lost"]),
        "seconds_to_go_on": {"median": round(statistics.median(seconds), 3),
                             "p95": round(seconds[int(len(seconds) * 0.95)], 3),
                             "most": round(seconds[-1], 3)}}))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
