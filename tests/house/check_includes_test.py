#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes files to a small tree: check_includes.py must report each missing header, and no other."""
import tempfile
import unittest
from pathlib import Path

from check_includes import violations

HEADER = "#include <mutex>\n"
MISSING = "nn/a.cpp: uses std names of <mutex>, which it does not include"
USE = "std::mutex all;\n"
CASES = {
    "itself": ("#include <mutex>\n" + USE, []),
    "through a header of weft": ('#include "weft/locks.h"\n' + USE, []),
    "a header that some libraries let include it": ("#include <condition_variable>\n" + USE,
                                                    [MISSING]),
    "not at all": (USE, [MISSING]),
    "in some builds only": ("#ifdef WEFT_WITH_CUDA\n#include <mutex>\n#endif\n" + USE, [MISSING]),
    "named in a comment and a text": ('// std::mutex\nconst char* text = "std::mutex";\n', []),
}


class CheckIncludes(unittest.TestCase):
    def test_cases(self):
        for what, (content, expected) in CASES.items():
            with self.subTest(what), tempfile.TemporaryDirectory() as root:
                for name, text in (("include/weft/locks.h", HEADER), ("nn/a.cpp", content)):
                    path = Path(root, name)
                    path.parent.mkdir(parents=True)
                    path.write_text(text)
                self.assertEqual(list(violations(Path(root))), expected)


if __name__ == "__main__":
    unittest.main()
