# SPDX-License-Identifier: Apache-2.0
"""Indexing by tensors, masks, lists, slices and their mixtures, against NumPy."""

import numpy as np
import pytest
import weft

DRAW = np.random.default_rng(0)
A = DRAW.normal(size=(4, 5, 6)).astype("float32")
I, J = np.array([2, -1, 0]), np.array([[1], [3]])
MASK, ROWS = A > 0.3, np.array([True, False, True, True])
ALL = slice(None)
INDICES = [
    (I,),
    (ALL, I),
    (I, ALL, np.array([1, 2, 3])),
    (J, I),
    (slice(1, 3), J, I),
    ([0, 2],),
    (ALL, [1]),
    (..., [-1]),
    (MASK,),
    (ROWS,),
    (ALL, np.array([1, 0, 1, 1, 0], dtype=bool)),
    (None, I),
    (I, None),
    (np.zeros(0, dtype="int64"),),
    (ALL, ALL, J),
    (MASK[:, :, 0],),
    (MASK[:, :, 0], 2),
    (ALL, MASK[0]),
    (slice(None, None, -1),),
    (slice(3, 0, -2), ALL, slice(None, None, -1)),
    (slice(0, 3, -1),),
    (slice(None, None, -1), I),
]


def converted(index, convert=weft.from_numpy):
    return tuple(convert(x) if isinstance(x, np.ndarray) else x for x in index)


@pytest.mark.parametrize("number", range(len(INDICES)))
def test_elements_are_numpys(number):
    index = INDICES[number]
    expected = A[index]
    np.testing.assert_array_equal(weft.from_numpy(A)[converted(index)].numpy(), expected)
    for value in (7.0, DRAW.normal(size=expected.shape).astype("float32")):
        whole, x = A.copy(), weft.from_numpy(A.copy())
        whole[index] = value
        x[converted(index)] = value if isinstance(value, float) else weft.from_numpy(value)
        np.testing.assert_array_equal(x.numpy(), whole)


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_elements_of_sharded_tensors_are_numpys(ranks):
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": ranks})

        def everywhere(x):
            return weft.distribute(weft.from_numpy(x), mesh)

        for placement in (weft.Shard(0), weft.Shard(1), weft.Shard(2), weft.Replicate()):
            x = weft.distribute(weft.from_numpy(A), mesh, [placement])
            for index in INDICES:
                got = x[converted(index, everywhere)].full_tensor().numpy()
                np.testing.assert_array_equal(got, A[index], err_msg=f"{placement} {index}")

    weft.run_ranks(ranks, body, deadline=60)


def test_gradients_add_up_where_indices_are_equal():
    x = weft.from_numpy(A.copy()).requires_grad_()
    index = (I, ALL, np.array([1, 1, 2]))
    (x[converted(index)] * 3).sum().backward()
    expected = np.zeros_like(A)
    np.add.at(expected, index, 3)
    np.testing.assert_allclose(x.grad.numpy(), expected)
    leaf = weft.from_numpy(A.copy()).requires_grad_()
    y = leaf * 1
    y[weft.from_numpy(MASK)] = 0.0
    y.sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), np.where(MASK, 0.0, 1.0))


@pytest.mark.parametrize(
    "index, kind, words",
    [
        (weft.asarray([9]), IndexError, "index 9 is outside dim 0"),
        ((weft.asarray([9]), weft.asarray([0])), IndexError, "index of dim 0.* is 9, expected -"),
        (1.5, IndexError, "it is a float, expected an int"),
        (weft.ones(2), IndexError, "is f32, expected an integer or bool"),
        (weft.from_numpy(ROWS[:2]), IndexError, r"shape of the mask is \[2\]"),
        ((weft.asarray([0]), 0, 0, 0), IndexError, "number of entries is 4"),
    ],
)
def test_a_wrong_index_is_named(index, kind, words):
    with pytest.raises(kind, match=words):
        weft.from_numpy(A)[index]


def test_the_last_of_equal_indices_is_assigned():
    x, expected = weft.from_numpy(A.copy()), A.copy()
    x[weft.asarray([1, 1])] = weft.from_numpy(A[:2])
    expected[[1, 1]] = A[:2]
    np.testing.assert_array_equal(x.numpy(), expected)
