#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the usage texts of the scripts and the example in README.md: scripts_test.py ROOT."""
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1))


def run(script, *arguments):
    """Returns (exit code, stdout, stderr) of a script of the project."""
    done = subprocess.run(
        [ROOT / "scripts" / script, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


class Scripts(unittest.TestCase):
    def test_help_is_printed(self):
        for script in (
            "test",
            "long",
            "quickstart",
            "bench",
            "dev",
            "docs",
            "gpu_carry",
            "gpu_check",
            "wheel",
            "debs",
            "release",
        ):
            code, out, err = run(script, "--help")
            self.assertEqual((code, err), (0, ""))
            self.assertIn(f"usage: scripts/{script}", out)

    def test_wrong_usage_is_one_sentence_and_exit_code_2(self):
        for script, arguments, sentence in (
            ("test", ["--presets"], "test: unknown argument --presets; see scripts/test --help"),
            ("test", ["--preset"], "test: --preset needs a value; see scripts/test --help"),
            ("test", ["--preset", "x"], "test: no preset x (release, asan, tsan, coverage)"),
            ("test", ["--long", "mips"], "long: no part mips; see scripts/long --help"),
            ("quickstart", ["fast"], "quickstart: unknown argument fast; see scripts/quickstart"),
            ("dev", ["--fast"], "dev: unknown argument --fast; see scripts/dev --help"),
            ("dev", ["--base", "x y"], "dev: there is no revision x y; see scripts/dev --help"),
            ("docs", ["--pdf"], "docs: unknown argument --pdf; see scripts/docs --help"),
            ("docs", ["--package"], "docs: --package needs a value; see scripts/docs --help"),
            ("gpu_carry", ["--to"], "gpu_carry: unknown argument --to; see scripts/gpu_carry"),
            ("gpu_check", ["--part", "all"], "gpu_check: no part all (build, tests, "),
            ("gpu_check", ["--carried", "/nowhere"], "gpu_check: /nowhere is not there"),
            ("wheel", ["--all"], "wheel: unknown argument --all; see scripts/wheel --help"),
            ("wheel", ["--python"], "wheel: --python needs a value"),
            ("debs", ["now"], "debs: unknown argument now; see scripts/debs --help"),
            ("bench", ["speed"], "bench: argument NAME: invalid choice: 'speed'"),
            ("bench", ["train", "--rounds", "0"], "bench: --rounds is 0, at least 1"),
            ("bench", ["train", "--peers", "/nowhere"], "bench: --peers /nowhere is no folder"),
        ):
            with self.subTest(script=script, arguments=arguments):
                code, out, err = run(script, *arguments)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(sentence, err)

    def test_dev_finds_the_tests_of_touched_files(self):
        for files, groups in (
            (["include/weft/mesh.h", "ops/README.md"], "mesh ops"),
            (["src/launch/guest.cpp"], "cli comm mpi"),
            (["src/kernels/map/map.h", "docs/index.md", "src/base/half.h"],
             "kernels matmul python src"),
            (["tests/fuzz/corpus/dcp/x"], "fuzz"),
            (["LICENSE"], "nothing"),
        ):  # fmt: skip
            self.assertEqual(run("dev", "--list", *files)[:2], (0, f"== touched: {groups}\n"))

    def test_readme_shows_the_example_that_the_install_test_runs(self):
        _, _, example = (ROOT / "tests/house/consumer/main.cpp").read_text().split("\n", 2)
        for page in ("README.md", "docs/start.md"):
            self.assertIn(f"```cpp\n{example}```\n", (ROOT / page).read_text())

    def test_weft_h_includes_every_header_for_users(self):
        headers = {f"weft/{path.name}" for path in (ROOT / "include/weft").glob("*.h")}
        text = (ROOT / "include/weft/weft.h").read_text()
        # Headers of operations that weft/ops.h leaves out may be included too.
        included = set(re.findall('#include "(weft/[^/"]+)"', text))
        # A header for programs of MPI includes <mpi.h>.
        self.assertEqual(included, headers - {"weft/weft.h", "weft/mpi.h"})

    def test_every_example_is_listed_and_short(self):
        page = (ROOT / "examples/README.md").read_text()
        for path in (ROOT / "examples").iterdir():
            if path.is_dir() or path.suffix in (".py", ".cpp"):
                self.assertIn(f"`{path.name}`", page)
            if path.is_dir():
                main = next(path.glob("main.*"))
                self.assertLess(len(main.read_text().splitlines()), 150)

    def test_the_module_of_fortran_declares_every_function_of_c(self):
        headers = (ROOT / "include/weft/c").glob("*.h")
        module = (ROOT / "include/weft/fortran/weft.f90").read_text()
        declared = dict(re.findall(r"function (weft_\w+)\(([^)]*)\) bind\(c\)", module))
        declared = {name: re.findall(r"\w+", names) for name, names in declared.items()}
        expected = {}
        for text in map(Path.read_text, headers):
            function = r"WEFT_C_API \S+ (?:char\* )?(\w+)\(([^;]*)\);"
            for name, arguments in re.findall(function, text):
                arguments = arguments.replace("(*body)(void* data)", "body")
                expected[name] = re.findall(r"(\w+)(?:,|$)", arguments.replace("void", ""))
            for name, value in re.findall(r"^  (WEFT_\w+) = (\d+)", text, re.M):
                self.assertIn(f"{name} = {value}", module)
        self.assertGreater(len(expected), 50)
        self.assertEqual(declared, expected)

    def test_packages_are_named_in_one_place(self):
        for script in ("test", "long", "quickstart", "bench"):
            self.assertNotIn("libdnnl", (ROOT / "scripts" / script).read_text())


if __name__ == "__main__":
    unittest.main()
