# SPDX-License-Identifier: Apache-2.0
"""Provokes each error about bad arguments."""

import pytest

import weft

X = weft.ones((2, 3))
VECTOR = weft.ones((3,))
NUMBER = weft.ones(())
INTS = weft.arange(3)

ERRORS = [
    (lambda: weft.arange(0, 5, 0), ValueError, "arange: step is 0"),
    (lambda: weft.argsort(X, axis=2), ValueError, "dim is 2, expected one of the 2 dims"),
    (lambda: weft.asarray(object()), TypeError, "asarray: it is a object, expected numbers,"),
    (lambda: weft.full(2, 1j, dtype=weft.int64), ValueError, "full: value is complex, expected"),
    (lambda: weft.asarray([[1], [2, 3]]), ValueError, "lengths of nested lists differ"),
    (lambda: weft.asarray([300], dtype=weft.uint8), OverflowError, "out of bounds"),
    (lambda: weft.asarray(X, device="meta"), ValueError, "asarray: device is meta, expected cpu"),
    (lambda: weft.asarray([1], dtype="float31"), ValueError, "float31"),
    (lambda: weft.astype(X, weft.int32, device="meta"), ValueError, "astype: the tensor is on cpu"),
    (
        lambda: weft.broadcast_arrays(X, weft.ones(2)),
        ValueError,
        r"\[2, 3\], \[2\], expected ones that",
    ),
    (lambda: weft.can_cast(3, weft.int32), TypeError, "can_cast: argument is 3, expected a tensor"),
    (lambda: weft.clip(INTS, 2**70), ValueError, "expected one that a tensor of i64 holds"),
    (lambda: weft.concat([]), ValueError, "number of tensors is 0"),
    (lambda: weft.cumulative_prod(NUMBER), ValueError, "cumulative_prod: axis is missing"),
    (lambda: weft.cumulative_sum(X), ValueError, r"cumulative_sum: axis is missing, expected one"),
    (lambda: weft.cumulative_sum(X, axis=2), ValueError, "dim is 2, expected one of the 2 dims"),
    (lambda: weft.diff(VECTOR, n=-1), ValueError, "diff: n is -1, expected at least 0"),
    (lambda: weft.diff(NUMBER), ValueError, "diff: dim is -1, expected one of the 0 dims"),
    (lambda: weft.empty_like(X, device="tpu"), ValueError, "tpu"),
    (lambda: weft.expand_dims(X, axis=3), IndexError, "axis is 3, expected -3 to 2"),
    (lambda: weft.finfo(weft.int32), ValueError, "dtype is int32, expected a floating one; see"),
    (lambda: weft.from_dlpack(object()), TypeError, "expected an object with __dlpack__"),
    (lambda: weft.from_dlpack(X, device="meta"), ValueError, "from_dlpack: device is meta"),
    (lambda: weft.full(2, 256, dtype="uint8"), ValueError, "full: value is 256, expected 0 to 255"),
    (lambda: weft.full(2, weft.nan, dtype="int32"), ValueError, "full: value is nan, expected"),
    (lambda: weft.full(2, 2**63), ValueError, "for int64"),
    (lambda: weft.full_like(INTS, weft.inf), ValueError, "full_like: value is inf, expected"),
    (lambda: weft.iinfo(X), ValueError, "dtype is float32, expected an integer one; see finfo"),
    (lambda: weft.iinfo("bool"), ValueError, "dtype is bool, expected an integer one"),
    (lambda: weft.isdtype(weft.int32, "odd"), ValueError, "isdtype: kind is 'odd', expected one"),
    (lambda: weft.linspace(0, 1, -1), ValueError, "must be at least 0, got -1"),
    (lambda: weft.matmul(X, NUMBER), ValueError, r"matmul: operands are \[2, 3\] and \[\]"),
    (lambda: weft.matmul(X, X), ValueError, "factor k is 2 in operand 1"),
    (lambda: weft.matmul(VECTOR, weft.ones(2)), ValueError, "factor k"),
    (lambda: weft.matrix_transpose(VECTOR), ValueError, r"matrix_transpose: the tensor is \[3\]"),
    (lambda: weft.meshgrid(X), ValueError, r"meshgrid: tensor 0 is \[2, 3\]"),
    (lambda: weft.meshgrid(VECTOR, indexing="yx"), ValueError, "meshgrid: indexing is 'yx'"),
    (lambda: weft.moveaxis(X, (0, 1), 0), ValueError, "number of places is 1"),
    (lambda: weft.moveaxis(X, (0, 0), (0, 1)), ValueError, r"dim 0 of \[2, 3\] is given twice,"),
    (lambda: weft.moveaxis(X, 2, 0), ValueError, "dim is 2, expected one of the 2 dims"),
    (lambda: weft.nonzero(NUMBER), ValueError, "nonzero: number of dims is 0"),
    (lambda: weft.ones_like(X, device="cpu:-1"), ValueError, "cpu:-1"),
    (lambda: weft.repeat(VECTOR, -1), ValueError, "repeat: a count is -1"),
    (
        lambda: weft.repeat(VECTOR, weft.ones(2)),
        ValueError,
        r"repeat: \[2\] counts, expected \[3\]",
    ),
    (lambda: weft.repeat(VECTOR, weft.asarray([1, -2, 1])), ValueError, "repeat: a count is -2"),
    (lambda: weft.repeat(X, 2, axis=2), ValueError, "repeat: dim is 2"),
    (lambda: weft.reshape(X, (4,)), ValueError, "of \\[4\\] is 4, expected 6"),
    (lambda: weft.reshape(X.mT, (6,), copy=False), ValueError, "because copy is False"),
    (lambda: weft.result_type(1, 2.0), ValueError, "all arguments are numbers, expected"),
    (lambda: weft.roll(X, (1, 2)), ValueError, "2 shifts without dims"),
    (lambda: weft.roll(X, (1, 2), axis=(0,)), ValueError, "2 shifts for 1 dims"),
    (lambda: weft.roll(X, 1, axis=2), ValueError, "roll: dim is 2"),
    (lambda: weft.searchsorted(X, X[0]), ValueError, r"the values are \[3\], expected the dims"),
    (lambda: weft.searchsorted(VECTOR, X, side="up"), ValueError, 'side is "up"'),
    (lambda: weft.sort(X, axis=-3), ValueError, "dim is -3, expected one of the 2 dims"),
    (lambda: weft.squeeze(X, 0), ValueError, "is 2, expected 1"),
    (lambda: weft.stack([X, VECTOR]), ValueError, r"stack: the shapes are \[2, 3\], \[3\]"),
    (lambda: weft.stack([]), ValueError, "number of tensors is 0"),
    (lambda: weft.take(X, INTS), ValueError, r"take: axis is missing, expected one of the 2 of"),
    (lambda: weft.take(VECTOR, INTS + 1), ValueError, "index is 3, expected one of the 3"),
    (lambda: weft.tensordot(X, X, axes=3), ValueError, "tensordot: the number of dims is 3"),
    (lambda: weft.tensordot(X, X, axes=1), ValueError, "dim 0 of .* is 2, expected 3 as"),
    (lambda: weft.tensordot(X, X, axes=((0,), (0, 1))), ValueError, "are 2, expected 1"),
    (lambda: weft.tensordot(X, X, axes=((2,), (0,))), ValueError, "dim is 2, expected one of"),
    (lambda: weft.tile(X, -1), ValueError, "tile: a count is -1"),
    (lambda: weft.unstack(NUMBER), ValueError, "unstack: dim is 0, expected one of the 0 dims"),
    (lambda: weft.var(X, axis=2), ValueError, "dim is 2, expected one of the 2 dims"),
    (lambda: weft.vecdot(X, NUMBER), ValueError, "vecdot: dim is -1, expected one of"),
    (lambda: weft.vecdot(X, weft.ones(2)), ValueError, "vecdot: dim -1 of .* is 2, expected 3"),
    (lambda: weft.zeros((2, -1)), ValueError, "expected sizes of at least 0"),
    (lambda: weft.zeros_like(X, device="cpu:x"), ValueError, "cpu:x"),
    (lambda: weft.linalg.cross(X, weft.ones(2)), ValueError, r"cross: dim -1 .* is 2, expected 3"),
    (lambda: weft.linalg.diagonal(VECTOR), ValueError, "diagonal: dim is -2, expected one of the"),
    (lambda: weft.linalg.matrix_norm(VECTOR), ValueError, r"matrix_norm: the tensor is \[3\]"),
    (lambda: weft.linalg.matrix_norm(X, ord="two"), ValueError, "the order is 'two'"),
    (lambda: weft.linalg.matrix_norm(X, ord=3), ValueError, "the order is 3"),
    (lambda: weft.linalg.outer(X, VECTOR), ValueError, r"outer: the tensor is \[2, 3\]"),
    (lambda: weft.linalg.trace(NUMBER), ValueError, r"diagonal: the tensor is \[\], expected"),
]


@pytest.mark.parametrize("call, kind, words", ERRORS, ids=[words for _, _, words in ERRORS])
def test_error(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_tensors_of_one_device_do_not_mix_with_sharded_ones():
    def body(world):
        x = weft.ones((5, 7), mesh=weft.DeviceMesh(world, {"x": 2}))
        ints, vector = weft.asarray([0, 1, 2]), weft.asarray([1.0] * 7)
        for call in (lambda: weft.take(x, ints, axis=0), lambda: weft.matmul(x, vector)):
            with pytest.raises(ValueError, match="has no mesh, expected mesh"):
                call()
        with pytest.raises(ValueError, match="zeros_like: device is meta, expected cpu, that of"):
            weft.zeros_like(x, device="meta")

    weft.run_ranks(2, body, deadline=30)
