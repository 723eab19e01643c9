# SPDX-License-Identifier: Apache-2.0
"""Calls that both weft and NumPy support, with their operands.

A case is call(xp, x, ...): xp is weft or numpy. Functions that NumPy spells differently have a
separate reference. Values are sixteenths, so that sums are exact in every order.
"""

from typing import Callable, NamedTuple

import numpy as np


class Case(NamedTuple):
    name: str
    call: Callable
    operands: tuple
    kinds: str = "f"  # of f floating, i signed, u unsigned, b bool
    reference: Callable | None = None
    partial: bool = True  # also with a Partial first operand

    def numpy(self, *operands):
        return (self.reference or self.call)(np, *operands)


DTYPES = {
    "f": ("float32", "float64", "float16", "bfloat16"),
    "i": ("int8", "int16", "int32", "int64"),
    "u": ("uint8", "uint16", "uint32", "uint64"),
    "b": ("bool",),
}


def dtypes_of(case):
    return [dtype for kind in case.kinds for dtype in DTYPES[kind]]


class Real:
    """Sixteenths in [low, high], always the same ones."""

    def __init__(self, *shape, low=-4.0, high=4.0):
        self.shape, self.low, self.high = shape, low, high

    def values(self, dtype, seed):
        draw = np.random.default_rng(seed)
        low, high = self.low, self.high
        if dtype == "bool":
            return draw.integers(0, 2, self.shape).astype(bool)
        if dtype.startswith("uint"):
            low, high = max(low, 0.0), max(high, 4.0)
        if dtype.startswith(("int", "uint")):
            return draw.integers(np.ceil(low), np.floor(high) + 1, self.shape).astype(dtype)
        values = draw.integers(round(low * 16), round(high * 16) + 1, self.shape) / 16
        return values.astype("float32" if dtype == "bfloat16" else dtype)


def operands_of(case, dtype):
    """NumPy arrays of the operands; bfloat16 as float32, which holds the same sixteenths."""
    return [
        spec.values(dtype, seed) if isinstance(spec, Real) else spec
        for seed, spec in enumerate(case.operands)
    ]


def _named(name, **keywords):
    return lambda xp, *operands: getattr(xp, name)(*operands, **keywords)


def _of_any_values(kinds, names):
    return [(name, kinds, {}) for name in names.split()]


_MATRIX = Real(5, 7)

_OF_ONE = [
    *_of_any_values(
        "fiu", "abs ceil floor isfinite isinf isnan negative positive round sign square trunc"
    ),
    *_of_any_values("f", "asinh atan cos cosh exp expm1 signbit sin sinh tanh"),
    *_of_any_values("iub", "bitwise_invert"),
    *_of_any_values("fiub", "logical_not"),
    ("acos", "f", {"low": -1, "high": 1}),
    ("acosh", "f", {"low": 1, "high": 8}),
    ("asin", "f", {"low": -1, "high": 1}),
    ("atanh", "f", {"low": -0.9375, "high": 0.9375}),
    ("log", "f", {"low": 0.0625, "high": 8}),
    ("log10", "f", {"low": 0.0625, "high": 8}),
    ("log1p", "f", {"low": -0.9375, "high": 8}),
    ("log2", "f", {"low": 0.0625, "high": 8}),
    ("reciprocal", "f", {"low": 0.0625}),
    ("sqrt", "f", {"low": 0}),
    ("tan", "f", {"low": -1.25, "high": 1.25}),
]
OF_ONE = [Case(name, _named(name), (Real(5, 7, **span),), kinds) for name, kinds, span in _OF_ONE]

_OF_TWO = [
    *_of_any_values("fiub", "add equal logical_and logical_or logical_xor not_equal"),
    *_of_any_values("f", "atan2 copysign hypot logaddexp"),
    *_of_any_values("iub", "bitwise_and bitwise_or bitwise_xor"),
    *_of_any_values(
        "fiu", "greater greater_equal less less_equal maximum minimum multiply subtract"
    ),
    ("bitwise_left_shift", "iu", {"low": 0}),
    ("bitwise_right_shift", "iu", {"low": 0}),
    ("divide", "f", {"low": 0.0625}),
    ("floor_divide", "fiu", {"low": 1}),
    ("pow", "iu", {"low": 0, "high": 4}),
    ("remainder", "fiu", {"low": 1}),
]
OF_TWO = [
    Case(f"{name} of {shape}", _named(name), (_MATRIX, Real(*shape, **span)), kinds)
    for name, kinds, span in _OF_TWO
    for shape in ((5, 7), (7,), (5, 1))
] + [
    Case("pow of floats", _named("pow"), (Real(5, 7, low=0.0625), Real(5, 7, low=-3, high=3))),
    Case("nextafter", _named("nextafter"), (_MATRIX, Real(7)), partial=False),
]

_WITH_NUMBERS = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "less", "equal"]
WITH_NUMBERS = [
    Case(f"{name} with {label}", call, (Real(5, 7, low=1),), "f" if name == "divide" else "fi")
    for name in _WITH_NUMBERS
    for label, call in (
        ("a number", lambda xp, x, name=name: getattr(xp, name)(x, 2)),
        ("a number first", lambda xp, x, name=name: getattr(xp, name)(2, x)),
    )
] + [
    Case("pow with a number", lambda xp, x: xp.pow(x, 3), (_MATRIX,), "fi"),
    Case("clip to numbers", lambda xp, x: xp.clip(x, -1, 2), (_MATRIX,), "fi"),
    Case("clip from below", lambda xp, x: xp.clip(x, min=1), (_MATRIX,), "fiu"),
    Case("clip from above", lambda xp, x: xp.clip(x, max=2), (_MATRIX,), "fiu"),
    Case("clip to tensors", _named("clip"), (_MATRIX, Real(7, high=0), Real(5, 1, low=0)), "fi"),
    Case("clip to nothing", lambda xp, x: xp.clip(x), (_MATRIX,), "fiu"),
]

_AXES = [None, 0, 1, -1, (0, 1)]


def _over(name, axis, kinds, **keywords):
    label = "".join(f" {key}={value}" for key, value in keywords.items())
    return Case(
        f"{name} axis={axis}{label}", _named(name, axis=axis, **keywords), (_MATRIX,), kinds
    )


def _of_dtype(name, dtype, **keywords):
    """NumPy also sums in the requested dtype."""

    def call(xp, x):
        return getattr(xp, name)(x, dtype=getattr(xp, dtype), **keywords)

    return Case(f"{name} dtype={dtype}", call, (_MATRIX,), "fiub")


REDUCTIONS = (
    [_over(name, axis, "fi") for name in ("max", "min") for axis in _AXES]
    + [_over(name, axis, "fiu") for name in ("sum", "prod") for axis in _AXES]
    + [_over(name, axis, "fiub") for name in ("all", "any", "count_nonzero") for axis in _AXES]
    + [_over(name, axis, "f") for name in ("mean", "std", "var") for axis in _AXES]
    + [_over(name, axis, "fiu") for name in ("argmax", "argmin") for axis in (None, 0, 1, -1)]
    + [
        _over(name, axis, "f", keepdims=True)
        for name in "all any argmax argmin count_nonzero max mean min prod std sum var".split()
        for axis in (None, 1)
    ]
    + [_over(name, axis, "f", correction=1) for name in ("std", "var") for axis in (None, 0)]
    + [_over("var", 1, "f", correction=0.5, keepdims=True)]
    + [_of_dtype(name, dtype) for name in ("sum", "prod") for dtype in ("float64", "int32")]
)

_ALONG = [
    _over(name, axis, "fiu")
    for name in ("cumulative_sum", "cumulative_prod", "diff", "sort")
    for axis in (0, 1, -1)
]
SCANS = _ALONG + [
    _over("cumulative_sum", 1, "fi", include_initial=True),
    _over("cumulative_prod", 0, "fi", include_initial=True),
    _of_dtype("cumulative_sum", "float64", axis=1),
    _of_dtype("cumulative_prod", "int32", axis=0),
    Case("cumulative_sum of a vector", _named("cumulative_sum"), (Real(7),), "fiub"),
    Case("cumulative_prod of a vector", _named("cumulative_prod"), (Real(7),), "fiu"),
    _over("diff", 0, "fi", n=2),
    _over("diff", 0, "f", n=7),
    Case("diff of bool", _named("diff", axis=1), (_MATRIX,), "b"),
    Case(
        "diff with more",
        lambda xp, x, a, b: xp.diff(x, axis=1, prepend=a, append=b),
        (_MATRIX, Real(5, 1), Real(5, 2)),
        "fi",
    ),
    Case(
        "sort descending",
        _named("sort", axis=0, descending=True),
        (_MATRIX,),
        "fiu",
        lambda xp, x: xp.flip(xp.sort(x, axis=0), axis=0),
    ),
    Case(
        "argsort",
        _named("argsort", axis=1),
        (_MATRIX,),
        "fiu",
        lambda xp, x: xp.argsort(x, axis=1, stable=True),
    ),
    Case(
        "argsort descending",
        _named("argsort", axis=0, descending=True),
        (_MATRIX,),
        "fi",
        lambda xp, x: xp.argsort(-x, axis=0, stable=True),
    ),
]

_PLACES = np.array([4, 0, 2, 2])
_WITHIN = np.array([[1, 0, 6], [2, 2, 3], [0, 5, 6], [4, 4, 4], [6, 0, 1]])
_CONDITION = np.array([[True], [False], [True], [True], [False]])
_ALL = "fiub"


def _shape(name, call, *shape, reference=None):
    return Case(name, call, (Real(*(shape or (5, 7))),), _ALL, reference)


SHAPES = [
    _shape("broadcast_to", lambda xp, x: xp.broadcast_to(x, (3, 5, 7))),
    _shape("broadcast_to of ones", lambda xp, x: xp.broadcast_to(x, (5, 7)), 5, 1),
    _shape("expand_dims", lambda xp, x: [xp.expand_dims(x, axis=a) for a in (0, 1, 2, -1)]),
    _shape("flip", lambda xp, x: [xp.flip(x, axis=a) for a in (None, 0, -1, (0, 1))]),
    _shape("matrix_transpose", lambda xp, x: xp.matrix_transpose(x), 2, 5, 3),
    _shape("moveaxis", lambda xp, x: [xp.moveaxis(x, 0, -1), xp.moveaxis(x, -1, 1)], 5, 3, 2),
    _shape("moveaxis of several", lambda xp, x: xp.moveaxis(x, (0, 2), (1, 0)), 5, 3, 2),
    _shape("permute_dims", lambda xp, x: xp.permute_dims(x, (2, 0, 1)), 5, 3, 2),
    _shape("repeat", lambda xp, x: [xp.repeat(x, 3, axis=a) for a in (None, 0, 1)]),
    _shape("repeat never", lambda xp, x: xp.repeat(x, 0, axis=1)),
    _shape("reshape", lambda xp, x: [xp.reshape(x, s) for s in ((35,), (7, 5), (5, 7, 1), (-1,))]),
    _shape("reshape in copy", lambda xp, x: xp.reshape(x, (7, -1), copy=True)),
    _shape("roll", lambda xp, x: [xp.roll(x, s, axis=1) for s in (0, 1, -2, 9)]),
    _shape("roll of all", lambda xp, x: xp.roll(x, 3)),
    _shape("roll of several", lambda xp, x: xp.roll(x, (1, -2), axis=(0, 1))),
    _shape("squeeze", lambda xp, x: [xp.squeeze(x, axis=a) for a in (0, -1, (0, 2))], 1, 5, 1),
    _shape("tile", lambda xp, x: [xp.tile(x, r) for r in ((2,), (2, 3), (2, 1, 1), (1, 0))]),
    _shape("tril", lambda xp, x: [xp.tril(x, k=k) for k in (-2, 0, 3)]),
    _shape("triu", lambda xp, x: [xp.triu(x, k=k) for k in (-2, 0, 3)]),
    _shape("unstack", lambda xp, x: [*xp.unstack(x), *xp.unstack(x, axis=1)]),
    _shape("diagonal", lambda xp, x: [xp.linalg.diagonal(x, offset=k) for k in range(-6, 9)]),
    _shape("diagonal of many", lambda xp, x: xp.linalg.diagonal(x, offset=1), 2, 5, 4),
    _shape("item assignment free copy", lambda xp, x: xp.astype(x, x.dtype)),
    Case("concat", lambda xp, *xs: xp.concat(xs, axis=0), (_MATRIX, Real(2, 7)), _ALL),
    Case("concat last", lambda xp, *xs: xp.concat(xs, axis=-1), (_MATRIX, Real(5, 2)), _ALL),
    Case("concat flat", lambda xp, *xs: xp.concat(xs, axis=None), (_MATRIX, Real(2)), _ALL),
    Case("stack", lambda xp, *xs: [xp.stack(xs, axis=a) for a in (0, 1, -1)], (_MATRIX,) * 2, _ALL),
    Case(
        "broadcast_arrays", lambda xp, *xs: [*xp.broadcast_arrays(*xs)], (Real(7), Real(5, 1)), _ALL
    ),
    Case("meshgrid", lambda xp, *xs: [*xp.meshgrid(*xs)], (Real(5), Real(7), Real(2)), _ALL),
    Case(
        "meshgrid ij", lambda xp, *xs: [*xp.meshgrid(*xs, indexing="ij")], (Real(5), Real(7)), _ALL
    ),
    Case("repeat by counts", _named("repeat", axis=0), (_MATRIX, np.array([1, 0, 3, 2, 1])), _ALL),
    Case("take", _named("take", axis=0), (_MATRIX, _PLACES), _ALL),
    Case("take of the last", _named("take", axis=-1), (_MATRIX, _PLACES), _ALL),
    Case("take of a vector", lambda xp, x, i: xp.take(x, i, axis=0), (Real(5), _PLACES), _ALL),
    Case("take_along_axis", _named("take_along_axis", axis=1), (_MATRIX, _WITHIN), _ALL),
    Case("where", lambda xp, x, c, y: xp.where(c, x, y), (_MATRIX, _CONDITION, Real(7)), _ALL),
    Case(
        "where as condition",
        lambda xp, x, a, b: xp.where(x > 0, a, b),
        (_MATRIX, _MATRIX, Real(7)),
        "fiu",
    ),
    Case("where with a number", lambda xp, x, c: xp.where(c, x, 0), (_MATRIX, _CONDITION), "fiu"),
]

VALUES = [
    Case("nonzero", lambda xp, x: [*xp.nonzero(x)], (_MATRIX,), _ALL),
    Case("unique_all", lambda xp, x: [*xp.unique_all(x)], (_MATRIX,), _ALL),
    Case("unique_counts", lambda xp, x: [*xp.unique_counts(x)], (_MATRIX,), _ALL),
    Case("unique_inverse", lambda xp, x: [*xp.unique_inverse(x)], (_MATRIX,), _ALL),
    Case("unique_values", lambda xp, x: xp.sort(xp.unique_values(x)), (_MATRIX,), _ALL),
    Case(
        "searchsorted",
        lambda xp, x, v: [xp.searchsorted(xp.sort(x), v, side=s) for s in ("left", "right")],
        (Real(7), Real(5, 2)),
        "fiu",
    ),
    Case(
        "searchsorted by sorter",
        lambda xp, x, v: xp.searchsorted(x, v, sorter=xp.argsort(x)),
        (Real(7), Real(5, 2)),
        "fiu",
    ),
]

_BATCHED = (Real(2, 5, 3), Real(2, 3, 7))
_NUMERIC = "fi"


def _linear(name, call, *operands, kinds=_NUMERIC):
    return Case(name, call, operands, kinds)


PRODUCTS = (
    [
        _linear("matmul", _named("matmul"), _MATRIX, Real(7, 3)),
        _linear("matmul of many", _named("matmul"), *_BATCHED),
        _linear("matmul broadcast", _named("matmul"), Real(2, 5, 3), Real(3, 7)),
        _linear("matmul of vectors", _named("matmul"), Real(7), Real(7)),
        _linear("matmul of a row", _named("matmul"), Real(5), _MATRIX),
        _linear("matmul of a column", _named("matmul"), _MATRIX, Real(7)),
        _linear("matmul of a row and many", _named("matmul"), Real(3), Real(2, 3, 7)),
        _linear("tensordot", _named("tensordot"), Real(5, 3, 2), Real(3, 2, 7)),
        _linear("tensordot over one", _named("tensordot", axes=1), _MATRIX, Real(7, 3)),
        _linear("tensordot over none", _named("tensordot", axes=0), Real(5), Real(7)),
        _linear("tensordot of all", _named("tensordot", axes=2), _MATRIX, _MATRIX),
        _linear(
            "tensordot over pairs",
            _named("tensordot", axes=((0, -1), (1, 0))),
            Real(5, 3, 2),
            Real(2, 5, 7),
        ),
        _linear("vecdot", _named("vecdot"), _MATRIX, _MATRIX),
        _linear("vecdot broadcast", _named("vecdot", axis=-1), _MATRIX, Real(7)),
        _linear("vecdot of columns", _named("vecdot", axis=-2), _MATRIX, _MATRIX),
        _linear("outer", lambda xp, a, b: xp.linalg.outer(a, b), Real(5), Real(7)),
        _linear("cross", lambda xp, a, b: xp.linalg.cross(a, b), Real(5, 3), Real(5, 3)),
        _linear(
            "cross of columns",
            lambda xp, a, b: xp.linalg.cross(a, b, axis=-2),
            Real(3, 5),
            Real(3, 5),
        ),
        _linear("trace", lambda xp, x: [xp.linalg.trace(x, offset=k) for k in (-2, 0, 1)], _MATRIX),
        _linear("trace of many", lambda xp, x: xp.linalg.trace(x), Real(2, 5, 3)),
        _linear("matrix_norm", lambda xp, x: xp.linalg.matrix_norm(x), Real(2, 5, 3), kinds="f"),
    ]
    + [
        _linear(
            f"matrix_norm {order}",
            lambda xp, x, order=order: xp.linalg.matrix_norm(x, ord=order, keepdims=True),
            Real(2, 5, 3),
            kinds="f",
        )
        for order in ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf"))
    ]
    + [
        _linear(
            f"vector_norm {order} {axis}",
            lambda xp, x, order=order, axis=axis: xp.linalg.vector_norm(x, ord=order, axis=axis),
            Real(5, 7, low=0.25),
            kinds="f",
        )
        for order in (0, 1, 2, 3, -1, float("inf"), -float("inf"))
        for axis in (None, 1, (0, 1))
    ]
)

FAMILIES = {
    "of one": OF_ONE,
    "of two": OF_TWO,
    "with numbers": WITH_NUMBERS,
    "reductions": REDUCTIONS,
    "scans": SCANS,
    "shapes": SHAPES,
    "values": VALUES,
    "products": PRODUCTS,
}
CASES = [case for family in FAMILIES.values() for case in family]
