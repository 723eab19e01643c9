#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planted faults still apply to the sources: planted_test.py ROOT."""
import sys
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1))
sys.path.insert(0, str(ROOT / "tests" / "reliability"))
from planted import apply, header, patches  # noqa: E402


class Planted(unittest.TestCase):
    def test_each_applies_and_says_what_it_is(self):
        self.assertGreaterEqual(len(patches()), 10)
        for patch in patches():
            with self.subTest(patch.name):
                law, fault = header(patch)
                self.assertIn(law, ("L1", "L2", "L3"))
                self.assertTrue(fault)
                self.assertTrue(apply(ROOT, patch, "--check"), "make the patch anew")


if __name__ == "__main__":
    unittest.main()
