# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of tests/ops/numpy_values.h: what NumPy gives for the edges of elementwise
functions.

    python tests/reference/make_numpy_values.py       (needs numpy)

Each row is a function's name and its values in f64 on kEdges (of one number), on all pairs of
kPairEdges (of two), or on all pairs of kIntegerEdges (i64). Inputs are exact in f32.
"""

import contextlib
import io
from pathlib import Path

import numpy as np

np.seterr(all="ignore")
inf, nan = np.inf, np.nan

EDGES = [nan, inf, -inf, 0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3, -7, 2.0**-30,
         -(2.0**-30), 0.75, -0.75, 0.9375, 30, -30, 1000, 8388609]
PAIR_EDGES = [nan, inf, -inf, 0.0, -0.0, 1, -1, 2.5, -2.5, 7]
INTEGER_EDGES = [-7, -2, -1, 0, 1, 2, 3, 7]
SHIFT_EDGES = [0, 1, 5, 31, 63, 64, -1]

UNARY = ("sin cos tan asin acos atan tanh asinh acosh atanh expm1 log log1p log2 log10 sqrt "
         "abs negative sign floor ceil trunc round square isfinite isinf isnan signbit "
         "logical_not").split()
BINARY = ("power floor_divide remainder atan2 hypot copysign logaddexp nextafter maximum minimum "
          "logical_and logical_or logical_xor").split()
INTEGER = "floor_divide remainder bitwise_and bitwise_or bitwise_xor".split()
SHIFTS = "bitwise_left_shift bitwise_right_shift".split()


def written(value):
    if np.isnan(value):
        return "kNan"
    if np.isinf(value):
        return "kInf" if value > 0 else "-kInf"
    return repr(float(value)).removesuffix(".0") if value or not np.signbit(value) else "-0.0"


def lines(values, indent):
    text, line = [], " " * indent
    for item in [written(value) + "," for value in values]:
        if len(line) + len(item) + 1 > 99:
            text.append(line.rstrip())
            line = " " * indent
        line += item + " "
    text.append(line.rstrip().rstrip(","))
    return "\n".join(text)


def table(name, rows):
    print(f"\ninline const std::vector<NumpyRow> {name} = {{")
    for function, values in rows:
        print(f'    {{"{function}",\n     {{\n{lines(values, 9)}\n     }}}},')
    print("};")


def edges(name, values):
    print(f"inline const std::vector<double> {name} = {{\n{lines(values, 4)}}};")


def pairs(left, right, dtype):
    a, b = np.meshgrid(np.array(left, dtype), np.array(right, dtype), indexing="ij")
    return a.ravel(), b.ravel()


header = Path(__file__).parents[1] / "ops/numpy_values.h"
head = header.read_text().split("inline const std::vector<double> kEdges")[0]
with contextlib.redirect_stdout(io.StringIO()) as rest:
    edges("kEdges", EDGES)
    edges("kPairEdges", PAIR_EDGES)
    edges("kIntegerEdges", INTEGER_EDGES)
    edges("kShiftEdges", SHIFT_EDGES)
    x = np.array(EDGES)
    table("kNumpyUnary", [(name, getattr(np, name)(x)) for name in UNARY])
    a, b = pairs(PAIR_EDGES, PAIR_EDGES, np.float64)
    table("kNumpyBinary", [(name, getattr(np, name)(a, b)) for name in BINARY])
    a, b = pairs(INTEGER_EDGES, INTEGER_EDGES, np.int64)
    table("kNumpyInteger", [(name, getattr(np, name)(a, b)) for name in INTEGER])
    a, b = pairs(INTEGER_EDGES, SHIFT_EDGES, np.int64)
    table("kNumpyShifts", [(name, getattr(np, name)(a, b)) for name in SHIFTS])
    print("\n}  // namespace weft")
header.write_text(head + rest.getvalue())
