#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds docs/reliability.md to the tests that it names: docs_test.py ROOT."""
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1))
sys.path.insert(0, str(ROOT / "tests" / "reliability"))
from table import FAULTS  # noqa: E402

ROW = re.compile(r"^\| `([a-z-]+)` \|(.*)\|$", re.M)
ENTRY = re.compile(r"`([^`]+)`")


def rows(text):
    """{row: its cells}, in a list because a name may be there twice."""
    return [(name, [cell.strip() for cell in rest.split("|")]) for name, rest in ROW.findall(text)]


def why_missing(root, entry):
    """Returns why `path_of_a_file name_of_a_test` does not exist, or ""."""
    path, _, name = entry.partition(" ")
    for suffix, test in ((".cpp", rf"^TEST(_F|_P)?\(\w+, {name}\)"), (".py", rf"def {name}\(")):
        file = root / "tests" / f"{path}{suffix}"
        if file.exists():
            found = not name or re.search(test, file.read_text(), re.M)
            return "" if found else f"tests/{path}{suffix} has no test {name}"
    return f"tests/{path} does not exist"


class Docs(unittest.TestCase):
    def setUp(self):
        self.rows = rows((ROOT / "docs" / "reliability.md").read_text())

    def test_every_row_is_complete_and_there_once(self):
        self.assertGreater(len(self.rows), 30)
        names = [name for name, _ in self.rows]
        self.assertEqual(sorted(names), sorted(set(names)))
        for name, cells in self.rows:
            with self.subTest(name):
                self.assertEqual(len(cells), 4)
                self.assertTrue(all(cells))

    def test_every_row_names_a_test_that_exists(self):
        for name, cells in self.rows:
            entries = ENTRY.findall(cells[-1])
            with self.subTest(name):
                self.assertTrue(entries)
                for entry in entries:
                    if entry == "faults":
                        self.assertIn(name, FAULTS)
                    else:
                        self.assertEqual(why_missing(ROOT, entry), "")

    def test_every_fault_of_the_generator_has_its_row(self):
        tested = {name for name, cells in self.rows if "`faults`" in cells[-1]}
        self.assertEqual(tested, set(FAULTS))

    def test_a_name_that_is_gone_is_seen(self):
        self.assertIn("has no test", why_missing(ROOT, "checkpoint/crash_test NoSuchTest"))
        self.assertIn("does not exist", why_missing(ROOT, "checkpoint/no_such_test X"))
        self.assertEqual(why_missing(ROOT, "checkpoint/crash_test KilledAtEveryCall"), "")


if __name__ == "__main__":
    unittest.main()
