#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one known fault at a time into a copy of the sources, builds the program, and expects the
generator (faults.py) to find it within some cases. Prints how many cases each one took."""
import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGETS = ["weft_program", "weft_crash_shim", "weft_clock_shim"]
EPILOG = """\
Exit codes: 0 all were found, 1 one was not, 2 a flag is wrong or a patch cannot be built."""


def patches(only=None):
    return [path for path in sorted((HERE / "planted").glob("*.patch"))
            if not only or any(path.name.startswith(number) for number in only)]


def header(patch):
    """(law, fault) of a patch."""
    text = patch.read_text()
    return re.search(r"^Law: (\S+)$", text, re.M)[1], re.search(r"^Fault: (.+)$", text, re.M)[1]


def apply(tree, patch, *flags):
    """True when git applies it there; the tree need not be a separate repository."""
    environment = os.environ | {"GIT_DIR": "/nonexistent"}
    done = subprocess.run(["git", "apply", *flags, str(patch.resolve())], cwd=tree, text=True,
                          check=False, capture_output=True, env=environment)
    if done.returncode != 0:
        print(f"{patch.name}: {done.stderr.strip()}", file=sys.stderr)
    return done.returncode == 0


def copy_sources(source, tree):
    """Leaves out what is built; unchanged files keep their time, others get a new one."""
    def copy(from_, to):
        if not Path(to).exists() or not filecmp.cmp(from_, to, shallow=False):
            shutil.copy(from_, to)

    def ignored(folder, names):
        return [name for name in names
                if name == "__pycache__" or Path(folder) == source and name in ("build", ".git")]
    shutil.copytree(source, tree, ignore=ignored, copy_function=copy, dirs_exist_ok=True)


def build(tree):
    """Builds what the generator runs; a warning is no error there."""
    if not (tree / "build" / "build.ninja").exists():
        run(["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
             "-DWEFT_TESTS=ON", "-DWEFT_UNITY=ON", "-DWEFT_CUDA=OFF",
             "-DCMAKE_COMPILE_WARNING_AS_ERROR=OFF"], tree)
    run(["ninja", "-C", "build", *TARGETS], tree)


def run(command, tree):
    done = subprocess.run(command, cwd=tree, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stdout[-3000:] + done.stderr
        raise SystemExit(f"planted: {' '.join(command)} failed:\n{said}")


def find(tree, options):
    """(cases, first finding) of the generator; the finding is "" if there is none."""
    command = [sys.executable, HERE / "faults.py", "--program", tree / "build" / "bin" / "weft",
               "--seed", str(options.seed), "--cases", str(options.cases), "--jobs",
               str(options.jobs), "--until-found"]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"planted: faults.py failed:\n{done.stdout}{done.stderr}")
    cases = int(re.search(r"^(\d+) cases of", done.stdout, re.M)[1])
    found = re.search(r"^\r?(L\d: .*\n.*)", done.stdout, re.M)
    return cases, found[1] if found else ""


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, epilog=EPILOG)
    parser.add_argument("--source", type=Path, default=HERE.parent.parent, help="copied tree")
    parser.add_argument("--work", type=Path, help="keep the copy and its build here")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", action="append", metavar="NN", help="patches of this number")
    options = parser.parse_args(arguments)
    chosen = patches(options.only)
    if not chosen:
        parser.error(f"--only is {options.only}, expected the number of a patch")
    work = options.work or Path(tempfile.mkdtemp(prefix="weft-planted-"))
    tree = work.resolve() / "tree"
    missed = []
    try:
        copy_sources(options.source.resolve(), tree)
        for patch in chosen:
            law, fault = header(patch)
            if not apply(tree, patch):
                return 2
            try:
                build(tree)
                started = time.monotonic()
                cases, found = find(tree, options)
            finally:
                apply(tree, patch, "-R")
            verdict = f"found by {found[:2]} in" if found else "NOT FOUND in"
            print(f"{patch.stem:30} {verdict} {cases} cases, {time.monotonic() - started:.0f} s "
                  f"(expected {law}: {fault})\n  {found}", flush=True)
            missed += [] if found else [patch.stem]
    finally:
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} planted faults were found"
          + (f"; missed: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
