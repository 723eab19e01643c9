#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_walks.py finds functions that do not exist."""
import tempfile
import unittest
from pathlib import Path

from check_walks import problems_in

SOURCE = "void Level::start(int) {}\nclass Recorder {\n  void planned();\n};\nint go() {}\n"


class Check(unittest.TestCase):
    def problems(self, *rows):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "docs").mkdir()
            (root / "one.cpp").write_text(SOURCE)
            (root / "docs/architecture.md").write_text("".join(f"| {row} |\n" for row in rows))
            return list(problems_in(root, 1))

    def test_existing(self):
        rows = ("`Level::start` | `one.cpp` | a", "`go` | `one.cpp` | b")
        self.assertEqual(self.problems(*rows, "`Recorder::planned` | `one.cpp` | c"), [])

    def test_missing(self):
        for row in ("`Level::stop` | `one.cpp` | a", "`gone` | `one.cpp` | b",
                    "`go` | `two.cpp` | c", "nothing"):
            self.assertEqual(len(self.problems(row)), 1, row)


if __name__ == "__main__":
    unittest.main()
