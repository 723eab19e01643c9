#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one violation at a time in a small clean tree: check_floors.py must report each."""
import tempfile
import unittest
from pathlib import Path

from check_floors import LICENCE, violations

TABLE = """order base <- device <- kernels <- comm
order launch | mesh <- nn <- fsdp | tp <- cli
folder src/base inside
folder src/device inside
folder src/kernels inside
folder src/comm inside
folder src/launch inside
folder mesh inside
folder nn
folder fsdp
folder tp
folder cli
free tests
header weft/shape.h base
header weft/mesh.h mesh
"""
HEAD = f"// {LICENCE}\n"
PUBLIC = HEAD + "#pragma once\n"
CLEAN = {
    "tests/floors.txt": TABLE,
    "include/weft/shape.h": PUBLIC + "#include <vector>\n",
    "include/weft/mesh.h": PUBLIC + '#include "weft/shape.h"\n',
    "src/base/shape.cpp": HEAD + '#include "weft/shape.h"\n#include <dnnl.hpp>\n',
    "src/base/shape.h": HEAD,
    "src/kernels/rope/cpu.cpp": HEAD + '#include "src/kernels/map/map.h"\n',
    "mesh/mesh.cpp": HEAD + '#include "weft/mesh.h"\n#include "src/base/shape.h"\n',
    "nn/linear.cpp": HEAD + "#include <weft/mesh.h>\n#include <nlohmann/json.hpp>\n",
    "tests/src/shape_of_test.cpp": HEAD + '#include "src/base/shape.h"\nTEST_P(ShapeOf, Is) {}\n',
}
# violations to plant: path, content, part of the line that must be printed
PLANTED = {
    "upwards": ("src/base/shape.cpp", HEAD + '#include "mesh/layout.h"\n',
                "base includes mesh/layout.h"),
    **{f"{lower} upwards": (f"src/{lower}/a.cpp", HEAD + f'#include "src/{upper}/a.h"\n',
                           f"{lower} includes src/{upper}/a.h")
       for lower, upper in (("base", "device"), ("device", "kernels"), ("kernels", "comm"),
                            ("comm", "launch"))},
    "launch upwards": ("src/launch/a.cpp", HEAD + '#include "nn/a.h"\n',
                       "launch includes nn/a.h"),
    "launch sideways": ("src/launch/a.cpp", HEAD + '#include "mesh/layout.h"\n',
                        "launch includes mesh/layout.h"),
    "cycle of folders": ("src/kernels/map/map.h", HEAD + '#include "src/kernels/rope/rope.h"\n',
                         "src/kernels/map and src/kernels/rope include each other"),
    "upwards by the face": ("src/base/a.cpp", HEAD + '#include "weft/mesh.h"\n', "of floor mesh"),
    "upwards in angle brackets": ("src/base/a.cpp", HEAD + "#include <mesh/a.h>\n",
                                  "base includes mesh/a.h"),
    "header upwards": ("include/weft/shape.h", PUBLIC + '#include "weft/mesh.h"\n',
                       "of floor mesh"),
    "sideways": ("fsdp/a.cpp", HEAD + '#include "tp/plan.h"\n', "fsdp includes tp/plan.h"),
    "past the face": ("nn/a.cpp", HEAD + '#include "mesh/layout.h"\n', "through <weft/...> only"),
    "into tests": ("nn/a.cpp", HEAD + '#include "tests/support/a.h"\n', "tests is on no floor"),
    "bare name": ("src/base/a.cpp", HEAD + '#include "shape.h"\n',
                  "a quoted include starts at the root"),
    "unknown header": ("nn/a.cpp", HEAD + '#include "weft/b.h"\n',
                       "weft/b.h is not in tests/floors"),
    "header without floor": ("include/weft/b.h", PUBLIC, "has no floor"),
    "folder without floor": ("extra/a.cpp", HEAD, "folder extra has no floor"),
    "stale row": ("tests/floors.txt", TABLE + "header weft/b.h base\n", "weft/b.h does not exist"),
    "unknown floor": ("tests/floors.txt", TABLE + "header weft/b.h attic\n", "no floor of `order`"),
    "bad row": ("tests/floors.txt", TABLE + "cellar src\n", "not understood"),
    "twice included": ("include/weft/shape.h", HEAD, "#pragma once"),
    "long header": ("include/weft/shape.h", PUBLIC + "\n" * 199, "201 lines, at most 200"),
    "long private header": ("src/base/a.h", HEAD + "\n" * 200, "201 lines, at most 200"),
    "long function": ("src/base/a.cpp", HEAD + "int f(int x) {\n  if (x) return 1;\n" +
                      "  ++x;\n" * 58 + "}\n", "a.cpp:2: f: 61 lines, at most 60"),
    "long method": ("src/base/a.h", HEAD + "struct A {\n  template <class T>\n  void f() {\n" +
                    "    while (true) g('{');\n" * 58 + "  }\n};\n",
                    "a.h:3: f: 61 lines, at most 60"),
    "long test case": ("tests/src/a_test.cpp", HEAD + "TEST(A, B) {\n" +
                       "  for (int i : {1, 2}) f(i);\n" * 59 + "}\n",
                       "TEST: 61 lines, at most 60"),
    "long function in Python": ("python/a.py", f"# {LICENCE}\ndef f(x):\n" +
                                "    if x: x = 2\n" * 60, "a.py:2: f: 61 lines, at most 60"),
    "long file": ("src/base/a.cpp", HEAD + "\n" * 400, "401 lines, at most 400"),
    "long test": ("tests/src/a_test.cpp", HEAD + "\n" * 600, "601 lines, at most 600"),
    "suite that never runs": ("tests/a_test.cpp", HEAD + "TEST(B, C) {}\n", "suite B never runs"),
    "wide line": ("src/base/a.cpp", HEAD + "// " + "x" * 98 + "\n", "101 columns"),
    "no licence": ("src/base/a.cpp", "\n\n" + HEAD, "the first line is not"),
    "no licence in a script": ("scripts/a", "#!/bin/sh\n", "the first line is not"),
    "glob": ("src/CMakeLists.txt", "file(GLOB sources *.cpp)\n", "by GLOB"),
} | {
    f"public {name}": ("include/weft/shape.h", PUBLIC + f"#include <{name}>\n", f"not {name}")
    for name in ("mpi.h", "nccl.h", "cuda_runtime.h", "cublasLt.h", "cudnn.h", "dnnl.hpp",
                 "oneapi/dnnl/dnnl.hpp", "pybind11/pybind11.h", "range/v3/view/zip.hpp",
                 "nlohmann/json.hpp")
}


def found_in(tree):
    with tempfile.TemporaryDirectory() as root:
        for name, content in tree.items():
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return list(violations(Path(root)))


class CheckFloors(unittest.TestCase):
    def test_clean_tree_has_none(self):
        self.assertEqual(found_in(CLEAN), [])

    def test_each_planted_violation_is_named_alone(self):
        for what, (path, content, expected) in PLANTED.items():
            with self.subTest(what):
                found = found_in(CLEAN | {path: content})
                self.assertEqual(len(found), 1, found)
                self.assertIn(expected, found[0])

    def test_limits_themselves_are_allowed(self):
        tree = CLEAN | {"src/base/a.cpp": HEAD + "// " + "x" * 97 + "\n" + "\n" * 398}
        self.assertEqual(found_in(tree), [])

    def test_tables_may_be_long(self):
        rows = '    {"while", 1},\n' * 70
        table = f"Rows rows() {{\n  // if any\n  return {{\n{rows}  }};\n}}\n"
        binding = "void bind_a() {\n" + "  if (m) m.def();\n" * 70 + "}\n"
        tree = {"src/base/a.cpp": HEAD + table, "python/bindings/a.cpp": HEAD + binding,
                "tests/floors.txt": TABLE + "free python\n"}
        self.assertEqual(found_in(CLEAN | tree), [])

    def test_build_folders_are_not_read(self):
        self.assertEqual(found_in(CLEAN | {"build/dev/a.cpp": "int x;\n"}), [])


if __name__ == "__main__":
    unittest.main()
