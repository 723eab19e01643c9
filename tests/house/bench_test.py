#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests scripts/bench with a benchmark and a peer that only print: bench_test.py ROOT."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(sys.argv.pop(1))
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("bench", str(ROOT / "scripts/bench"))
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", LOADER))
sys.modules["bench"] = bench
LOADER.exec_module(bench)

# Prints the next value of a list at each call, counted in a file next to the script.
PRINTER = """
import json, pathlib, sys
count = pathlib.Path(__file__ + ".count")
call = int(count.read_text()) if count.exists() else 0
count.write_text(str(call + 1))
print("a message of the launcher")
for case, values, unit, extra in {cases}:
    print(json.dumps(dict(bench="{name}", case=case, value=values[call], unit=unit, **extra)))
"""


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "torch.py").write_text("")  # importable by the scripts next to it
        self.enterContext(unittest.mock.patch.dict(os.environ, PYTHONPATH=str(self.folder)))

    def write(self, name, cases):
        script = PRINTER.format(name=name, cases=cases)
        (self.folder / f"{name}.py").write_text(f"#!{sys.executable}\n{script}")
        (self.folder / f"{name}.py").chmod(0o755)

    def measured(self, name, rounds, pairs, peers):
        """The lines that bench prints when it runs `pairs` with weft.py as the binary."""
        out, patch = io.StringIO(), unittest.mock.patch
        with contextlib.ExitStack() as stack:
            stack.enter_context(patch.dict(bench.BENCHES, {name: pairs}))
            stack.enter_context(patch.object(bench, "build", lambda _: [self.folder / "weft.py"]))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            bench.measure(name, rounds, self.folder if peers else None)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def test_alone_it_prints_the_median_and_the_spread(self):
        self.write("weft", [("add", [3, 1, 2], "us", {})])
        (line,) = self.measured("dispatch", 3, [bench.Pair("", [])], peers=False)
        self.assertEqual((line["value"], line["value_min"], line["value_max"]), (2, 1, 3))
        self.assertEqual(line["rounds"], 3)

    def test_ratio_of_times_is_peer_over_ours_for_the_same_parameters(self):
        on, off = {"grad": True, "mesh": [8]}, {"grad": False, "mesh": [8]}
        self.write("weft", [("matmul", [2], "us", off), ("matmul", [4], "us", on)])
        peer = [("mm", [8], "us", on), ("mm", [10], "us", off), ("view", [1], "us", off)]
        self.write("torch_dispatch", peer)
        pair = bench.Pair("", [bench.Peer("torch_dispatch.py", "")])
        lines = self.measured("dispatch", 1, [pair], peers=True)
        found = {line["grad"]: line["value"] for line in lines if line["unit"] == "x"}
        self.assertEqual(found, {False: 5, True: 2})
        self.assertEqual(len(lines), 2 + 3 + 2)

    def test_ratio_of_rates_is_ours_over_peer(self):
        self.write("weft", [("tiny/fsdp2", [30, 50, 40], "tokens/s", {"ranks": 2})])
        self.write("torch_train", [("tiny/fsdp2/f32", [10, 30, 20], "tokens/s", {})])
        pair = bench.Pair("", [bench.Peer("torch_train.py", "")])
        *_, line = self.measured("train", 3, [pair], peers=True)
        self.assertEqual((line["value"], line["weft"], line["peer"]), (2, 40, 20))
        self.assertEqual(line["bench"], "weft : torch_train")

    def test_cases_of_different_size_or_dtype_are_not_compared(self):
        small = {"dtype": "f32", "size": "4KiB"}
        self.write("weft", [("s->r", [1], "GB/s", small)])
        self.write("torch_x", [("s->r", [1], "GB/s", {"dtype": "float32", "size": "1MiB"})])
        pair = bench.Pair("", [bench.Peer("torch_x.py", "")])
        self.assertEqual(len(self.measured("redistribute", 1, [pair], peers=True)), 2)
        self.write("torch_x", [("s->r", [1, 1], "GB/s", {"dtype": "float32", "size": "4KiB"})])
        self.write("weft", [("s->r", [1, 1], "GB/s", small)])
        self.assertEqual(len(self.measured("redistribute", 1, [pair], peers=True)), 3)

    def test_a_peer_that_aborts_at_its_end_keeps_its_lines(self):
        self.write("weft", [("add", [1], "us", {})])
        self.write("torch_x", [("add", [2], "us", {})])
        with (self.folder / "torch_x.py").open("a") as script:
            script.write("sys.stdout.flush()\nimport os\nos.abort()\n")
        pair = bench.Pair("", [bench.Peer("torch_x.py", "")])
        self.assertEqual(self.measured("dispatch", 1, [pair], peers=True)[-1]["value"], 2)

    def test_a_failing_benchmark_ends_with_exit_code_1(self):
        self.write("weft", [])
        with self.assertRaises(SystemExit) as caught:
            self.measured("dispatch", 1, [bench.Pair("", [])], peers=False)
        self.assertEqual(caught.exception.code, 1)


if __name__ == "__main__":
    unittest.main()
