# SPDX-License-Identifier: Apache-2.0
"""Tensors, layouts and indexing from Python, compared with NumPy."""

import numpy as np
import pytest
import weft
from weft import Partial, Replicate, Shard

VALUES = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


def test_repr_says_shape_dtype_device_and_layout():
    assert repr(weft.zeros((4, 8))).startswith("Tensor([4, 8], f32, cpu)\n")

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2, "tp": 2})
        sharded = weft.distribute(weft.zeros((4, 8)), mesh, {"dp": Shard(0)})
        return repr(sharded).splitlines()[0]

    assert set(weft.run_ranks(4, body)) == {"Tensor([4, 8], f32, cpu, mesh(dp=2, tp=2)[S(0), R])"}


@pytest.mark.parametrize(
    "index",
    [
        1,
        -1,
        (0, 2),
        (slice(1, None), ..., 0),
        (..., slice(None, None, 2)),
        (None, 1, slice(3, 1)),
        (slice(-2, None), None, slice(1, 10), -5),
        ...,
        (),
        (2, 3, 4),
    ],
)
def test_indexing_is_numpys(index):
    x = weft.from_numpy(VALUES.copy())
    np.testing.assert_array_equal(x[index].numpy(), VALUES[index])


def test_assignment_changes_the_elements():
    expected = VALUES.copy()
    x = weft.from_numpy(VALUES.copy())
    x[1, :, ::2] = 7
    expected[1, :, ::2] = 7
    x[..., 0] = weft.from_numpy(np.array([1.0, 2.0, 3.0, 4.0], np.float32))
    expected[..., 0] = [1, 2, 3, 4]
    np.testing.assert_array_equal(x.numpy(), expected)


def test_assignment_to_a_cut_dim():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 3})
        x = weft.distribute(weft.from_numpy(VALUES.copy()), mesh, [Shard(0)])
        x[0] = 1
        x[:, 1] = -1
        return x.full_tensor().numpy()

    expected = VALUES.copy()
    expected[0] = 1
    expected[:, 1] = -1
    for got in weft.run_ranks(3, body):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        (3, IndexError, "index: it is 3, expected one of the 3"),
        ((0, 0, 0, 0), IndexError, "number of entries is 4"),
        ((..., ...), IndexError, "is given twice"),
        ("a", IndexError, "it is a str, expected an int, slice, None, ..., tensor or list"),
    ],
)
def test_bad_indices_say_what_is_wrong(index, error, words):
    with pytest.raises(error, match=words):
        weft.from_numpy(VALUES.copy())[index]


def test_operators_and_numbers_on_either_side():
    a, b = VALUES[0] + 1, VALUES[1] + 2
    x, y = weft.from_numpy(a), weft.from_numpy(b)
    for ours, numpys in [
        (x + y, a + b),
        (2 - x, 2 - a),
        (x * 0.5, a * 0.5),
        (1 / x, 1 / a),
        (x**2, a**2),
        (2**x, 2**a),
        (x // 3, a // 3),
        (7 % x, 7 % a),
        (-x, -a),
        (abs(x - 4), abs(a - 4)),
        (x @ y.T, a @ b.T),
    ]:
        np.testing.assert_allclose(ours.numpy(), numpys, rtol=1e-6)
    np.testing.assert_array_equal((x > 5).numpy(), a > 5)
    np.testing.assert_array_equal(((x > 5) & (y < 30)).numpy(), (a > 5) & (b < 30))


def test_numbers_are_weak():
    ints = weft.asarray([1, 2, 3])
    assert (ints + 1).dtype == weft.int64
    assert (ints + 0.5).dtype == weft.float32
    assert (weft.ones((2,), dtype=weft.bfloat16) * 3).dtype == weft.bfloat16
    assert (ints + (2**53 + 2)).tolist() == [2**53 + 3, 2**53 + 4, 2**53 + 5]
    with pytest.raises(ValueError, match="expected one of 64 bits"):
        ints + 2**64


def test_what_is_no_operand_is_a_type_error():
    with pytest.raises(TypeError):
        weft.zeros((2,)) + "a"
    with pytest.raises(TypeError, match="Tensor"):
        weft.matmul(weft.zeros((2, 2)), 3)


def test_redistribute_takes_placements_or_mesh_and_placements():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 4})
        x = weft.distribute(weft.from_numpy(VALUES.copy()), mesh, [Shard(1)])
        assert x.placements == (Shard(1),)
        assert x.redistribute([Replicate()]).placements == (Replicate(),)
        assert x.redistribute(mesh, [Shard(2)]).placements == (Shard(2),)
        addends = weft.from_local(weft.ones((2, 3)), mesh, [Partial()], shape=(2, 3))
        assert "received" in x.explain([Replicate()])
        return addends.full_tensor().tolist()

    assert weft.run_ranks(4, body)[2] == [[4.0] * 3] * 2


def test_every_op_is_reached_by_its_name():
    for op in weft.all_ops():
        assert getattr(weft.ops, op.name).name == op.name
        assert op.rule
    x = weft.randn((3, 4))
    assert weft.ops.matmul(x, x.T).shape == (3, 3)
    with pytest.raises(AttributeError, match="weft.ops has no attribute 'nothing'"):
        weft.ops.nothing


def test_help_shows_the_rule():
    assert "Rule: ... m k, ... k n -> ... m n" in weft.matmul.__doc__


def test_a_tensor_has_no_truth_but_that_of_one_element():
    with pytest.raises(ValueError, match="number of elements is 2, expected 1"):
        bool(weft.zeros((2,)))
    assert bool(weft.ones(()))
    assert weft.asarray(2**62).item() == 2**62
    assert int(weft.asarray(7)) == 7
    assert [10, 20, 30][weft.asarray(1)] == 20


def test_visualize_tells_every_ranks_part():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2, "tp": 2})
        x = weft.distribute(weft.zeros((5, 4)), mesh, [Shard(0), Shard(1)])
        return str(weft.visualize(x)), weft.visualize(x).svg

    text, svg = weft.run_ranks(4, body)[0]
    assert text.splitlines()[1:] == [
        "rank 0 (dp=0, tp=0)  [0:3, 0:2]",
        "rank 1 (dp=0, tp=1)  [0:3, 2:4]",
        "rank 2 (dp=1, tp=0)  [3:5, 0:2]",
        "rank 3 (dp=1, tp=1)  [3:5, 2:4]",
    ]
    assert svg.startswith("<svg") and svg.count("<rect") == 9  # with the ground


def test_visualize_tells_a_redistribution():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2, "tp": 2})
        x = weft.distribute(weft.zeros((5, 4)), mesh, [Shard(0), Shard(1)])
        received = mesh.traffic
        change = weft.visualize(x, [Shard(1), Replicate()])
        return str(change), change.svg, str(mesh.traffic) == str(received)

    text, svg, nothing_moved = weft.run_ranks(4, body)[0]
    before, after = text.split("exchange over dp+tp: [S(0), S(1)] -> [S(1), R], ")
    assert "rank 3 (dp=1, tp=1)  [3:5, 2:4]" in before
    assert "rank 3 (dp=1, tp=1)  [0:5, 2:4]" in after
    assert nothing_moved and svg.count("<rect") == 17 and "exchange over dp+tp" in svg


def test_numbers_that_integers_do_not_hold_are_refused():
    small = weft.asarray([44], dtype="uint8")
    for call in (
        lambda: small + 300,
        lambda: small - 300,
        lambda: weft.less(small, 300),
        lambda: weft.maximum(small, -1),
        lambda: weft.asarray([5], dtype="int32") < 2**40,
    ):
        with pytest.raises(ValueError, match="expected one that (u8|i32) holds"):
            call()
    assert (small - 3).tolist() == [41] and (small - 0).tolist() == [44]
    assert (3 - small).tolist() == [215]
    assert (weft.asarray([5]) < float("inf")).tolist() == [True]
    assert weft.minimum(weft.asarray([5]), float("inf")).tolist() == [5.0]


def test_bools_beside_bools_stay_bools():
    truths = weft.asarray([True, False])
    assert (truths & True).dtype == weft.bool
    assert weft.where(truths, truths, False).dtype == weft.bool


def test_numpys_numbers_are_numbers():
    x = weft.asarray([1.0, 2.0])
    for sum_ in (x + np.float32(1), np.float32(1) + x, x + np.int64(1), np.int64(1) + x):
        assert isinstance(sum_, weft.Tensor) and sum_.tolist() == [2.0, 3.0]
    with pytest.raises(TypeError):
        np.ones(2) + x


def test_tensors_as_indices():
    x = weft.asarray([10, 20, 30])
    assert x[weft.asarray(1)].item() == 20
    with pytest.raises(TypeError, match="expected an integer one"):
        x[weft.asarray(1.0)]
    assert x[weft.asarray([2, 0])].tolist() == [30, 10]


def test_a_filled_partial_has_the_value():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 3})
        made = weft.ones((2,), mesh=mesh, placements=[Partial()])
        filled = weft.zeros((2,), mesh=mesh, placements=[Partial("avg")])
        filled.fill_(5)
        return made.full_tensor().tolist() + filled.full_tensor().tolist()

    assert weft.run_ranks(3, body)[1] == [1.0, 1.0, 5.0, 5.0]


def test_vectors_multiply_as_numpys_do():
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    x, y = weft.from_numpy(a), weft.from_numpy(b)
    np.testing.assert_allclose((x @ y).numpy(), a @ b)
    np.testing.assert_allclose((y @ x.T).numpy(), b @ a.T)
    assert (y @ y).item() == b @ b


def test_numbers_are_formatted():
    assert f"{weft.asarray(1.23456):.2f} {weft.asarray(7)}" == "1.23 Tensor([], i64, cpu) 7"


def test_whole_numbers_come_exactly_or_not_at_all():
    for call in (
        lambda: weft.asarray([1]) + 2**63,
        lambda: weft.zeros((2,), dtype=weft.int64).fill_(2**63),
        lambda: weft.full((2,), 1.5, dtype=weft.int64),
        lambda: weft.full((2,), 300, dtype=weft.uint8),
        lambda: weft.arange(float(2**60), 2**60 + 3, dtype=weft.int64),
        lambda: weft.arange(250, 260, dtype=weft.uint8),
        lambda: weft.arange(2**31 - 2, 2**31 + 2, dtype=weft.int32),
    ):
        with pytest.raises(ValueError, match=r"2\^53|whole number|holds|for (uint8|u8|i32|i64)"):
            call()
    assert weft.full((2,), 2**60 + 1, dtype=weft.int64).tolist() == [2**60 + 1] * 2
    assert weft.zeros((2,), dtype=weft.int64).fill_(2**60 + 1).tolist() == [2**60 + 1] * 2
    assert weft.arange(2**60, 2**60 + 3).tolist() == [2**60, 2**60 + 1, 2**60 + 2]


def test_what_is_missing_of_an_op_is_told():
    with pytest.raises(ValueError, match="reshape: structure .* expected a shape of as many"):
        weft.ops.reshape(weft.ones((3, 4)))


def test_tensors_are_gone_over_by_rows():
    assert [row.tolist() for row in weft.asarray([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    with pytest.raises(TypeError, match="has no dims"):
        list(weft.ones(()))
