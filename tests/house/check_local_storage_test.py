#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_local_storage.py finds uses that are not allowed, and lines that allow too much."""
import tempfile
import unittest
from pathlib import Path

from check_local_storage import problems_in

SOURCE = """
Tensor apart(const Tensor& a, const Tensor& b) {
  // a.storage() == b.storage() in a comment
  if (a.storage() == b.storage()) return clone(b);
  return b.block().is_dense() ? b : clone(b);
}
"""


class Check(unittest.TestCase):
    def problems(self, allowed):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in (("ops/one.cpp", SOURCE), ("tests/house/local_storage.txt", allowed)):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return list(problems_in(root))

    def test_allowed(self):
        lines = "# why\nops/one.cpp storage 1: copies\nops/one.cpp is_dense 1: copies\n"
        self.assertEqual(self.problems(lines), [])

    def test_not_allowed(self):
        found = self.problems("ops/one.cpp is_dense 1: copies\n")
        self.assertEqual(len(found), 1)
        self.assertIn("ops/one.cpp:4: 1 uses of storage, expected 0", found[0])

    def test_allows_too_much(self):
        lines = "ops/one.cpp storage 2: why\nops/one.cpp is_dense 1: why\n"
        lines += "ops/two.cpp data 1: why\nwhy\n"
        words = "\n".join(self.problems(lines))
        self.assertIn("1 uses of storage, expected 2", words)
        self.assertIn("ops/two.cpp has no use of data, expected 1", words)
        self.assertIn("the line is 'why'", words)


if __name__ == "__main__":
    unittest.main()
