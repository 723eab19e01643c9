# SPDX-License-Identifier: Apache-2.0
"""x[key] *= 2 on the tape, where the part had to move between ranks or is turned round."""

import numpy as np
import pytest
import weft
import weft.torch

KEYS = [
    (0, 4),
    (None, 0, 4),
    (slice(None), 4),
    (0, slice(1, 3)),
    (slice(None), slice(None, None, -1)),
    (slice(None, None, -1),),
    (1,),
    (slice(0, 2), slice(1, 6, 2)),
    (-1, slice(None, None, -2)),
]
VALUES = np.arange(14.0).reshape(2, 7)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_changes_once_and_has_its_gradient(ranks):
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": world.size})
        for placement in (weft.Shard(0), weft.Shard(1), weft.Replicate()):
            for key in KEYS:
                leaf = weft.distribute(weft.asarray(VALUES), mesh, [placement]).requires_grad_()
                x = leaf * 1
                x[key] *= 2
                x[key] *= 3
                weights = weft.distribute(weft.asarray(VALUES + 1), mesh, [weft.Replicate()])
                weft.sum(x * weights).backward()
                factor = np.ones_like(VALUES)
                factor[key] = 6
                told = f"{placement} {key}"
                made = np.asarray(x.detach().full_tensor())
                np.testing.assert_array_equal(made, VALUES * factor, told)
                gradient = np.asarray(leaf.grad.full_tensor())
                np.testing.assert_array_equal(gradient, (VALUES + 1) * factor, told)

    weft.run_ranks(ranks, body)


def test_lists_and_arrays_are_indices():
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": world.size})
        x = weft.distribute(weft.asarray(VALUES), mesh, [weft.Shard(0)])
        assert x[[0, 1], [1, 2]].full_tensor().tolist() == [1, 9]
        x[[0, 1], [1, 2]] = -1.0
        assert x.full_tensor().tolist()[1][2] == -1
        terms = weft.from_local(weft.asarray([1.0, 2.0]), mesh, [weft.Partial()])
        terms[0] += 2
        assert terms.full_tensor().tolist() == [2 + world.size, 2 * world.size]

    weft.run_ranks(2, body)
    assert weft.arange(4)[np.array([3, 1])].tolist() == [3, 1]
    assert weft.arange(4)[np.array([True, False, False, True])].tolist() == [0, 3]
    assert weft.arange(4)[np.array(2)].item() == 2


def test_where_of_two_numbers_keeps_integers():
    chosen = weft.torch.where(weft.asarray([True]), 16777217, 0)
    assert chosen.dtype == weft.int64 and chosen.tolist() == [16777217]
    assert weft.torch.where(weft.asarray([True]), True, False).dtype == weft.bool
