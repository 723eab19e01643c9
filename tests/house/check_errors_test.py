#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants wrong error texts in a small tree: check_errors.py must report each at its line."""
import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from check_errors import main

GOOD = [
    'fail("mesh: size is ", size, ", expected 1 to ", most, "; use fewer");',
    'fail("launch: ranks must be at least 1, got ", ranks);',
    'fail(what, ": parameter ", name, " does not exist");',
    'fail("--rank is ", rank, ", expected 0 to ", ranks - 1);',
    'fail_call("open", "checkpoint: ", path, ": ", std::strerror(errno));',
    'fail_call("MPI_Init", "thread level is ", level);',
    'fail("data: ", path, ": the header is cut short");',
    'fail("data: cannot list ", path);',
    '[[noreturn]] void fail(const Parts&... parts);',
    '// fail("A comment.")',
]
WRONG = {
    'fail("mesh: ", n, " axes");': "must say ', expected",
    'fail("mesh: it is bad (\\"", \')\', "), expected good.");': "must not end with",
    'fail("mesh: Size is 0, expected 1");': "must go on in lower case",
    'fail("Bad mesh");': "must begin with",
    'fail("mesh: there is no axis ", a, ", expected dp");': "must not say 'there is no'",
    'fail("mesh: a part "\n     "is wide");': "must say ', expected",
    'fail_call("open", path, " is no file");': "must not say 'is no'",
    'throw py::type_error(concat("mesh: a ", name, " is given"));': "must say ', expected",
}


def run(source, suffix=".cpp"):
    with tempfile.TemporaryDirectory() as root:
        Path(root, "src").mkdir()
        Path(root, "src", "a" + suffix).write_text(source)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = main([root])
        return code, out.getvalue()


class CheckErrors(unittest.TestCase):
    def test_good_texts_pass(self):
        code, out = run("\n".join(GOOD))
        self.assertEqual(code, 0, out)

    def test_each_wrong_text_is_named_with_its_line(self):
        for source, expected in WRONG.items():
            with self.subTest(source):
                code, out = run("\n\n// comment\n" + source + "\n" + GOOD[0])
                self.assertEqual(code, 1)
                self.assertTrue(out.startswith("src/a.cpp:4: " + expected), out)
                self.assertIn("1 wrong texts", out)

    def test_python_is_read(self):
        code, out = run('def f(n):\n    raise ValueError(f"take: {n} is bad")\n', ".py")
        self.assertEqual((code, out.split(": must")[0]), (1, "src/a.py:2"))


if __name__ == "__main__":
    unittest.main()
