# SPDX-License-Identifier: Apache-2.0
"""weft.testing accepts right custom ops and reports wrong ones."""

import numpy as np
import pytest
import weft

SAMPLES = [[(5, 7), (3, 7)]]


def forward(call, x, y):
    return np.square(x[:, None, :] - y[None, :, :]).sum(axis=2)


def backward(call, gradient, factor=2):
    x, y = call.operands
    dx = factor * (x * weft.sum(gradient, dim=1, keepdim=True) - gradient @ y)
    dy = 2 * (y * weft.sum(gradient, dim=0).reshape(-1, 1) - gradient.T @ x)
    return dx, dy


def distances(rule="n d, m d -> n m", backward=backward, **options):
    return weft.Op("distances", rule, forward, backward, samples=SAMPLES, **options)


def test_a_right_op_passes():
    assert weft.testing.gradcheck(distances()).startswith("2 operands, worst error ")
    assert " 0 wrong" in weft.testing.sweep(distances(), {"a": 3})
    assert " 0 wrong" in weft.testing.sweep(distances(), {"a": 2, "b": 2}, percent=5)


def test_without_samples_one_is_made_from_the_rule():
    op = weft.Op("distances", "n d, m d -> n m", forward, backward)
    weft.testing.gradcheck(op)
    weft.testing.sweep(op, {"a": 2})


def test_a_wrong_gradient_is_seen():
    wrong = distances(backward=lambda call, gradient: backward(call, gradient, factor=1.9))
    with pytest.raises(AssertionError, match="2 operands, worst error 0.0[0-9]+, bound 1e-06"):
        weft.testing.gradcheck(wrong)


def test_an_op_without_backward_has_nothing_to_check():
    with pytest.raises(AssertionError, match="nothing compared: no result requires a gradient"):
        weft.testing.gradcheck(distances(backward=None, differentiable=False))


def test_a_wrong_rule_is_seen():
    with pytest.raises(AssertionError, match=r"distances sample 0 on rank .*instead of"):
        weft.testing.sweep(distances(linear=[[0]]), {"a": 2})
    # The result of max has no sum over d: a sharded d gives a wrong sum.
    biggest = weft.Op(
        "biggest", "n d -> n", lambda call, x: x.max(axis=1, initial=-9), samples=[[(5, 7)]],
        differentiable=False,
    )
    with pytest.raises(AssertionError, match="wrong"):
        weft.testing.sweep(biggest, {"a": 4})
