# SPDX-License-Identifier: Apache-2.0
"""Gradients of functions composed of ops, compared with central differences of NumPy's
functions."""

import numpy as np
import pytest

import weft
from array_cases import CASES, operands_of
from array_compare import flat, to_numpy, to_weft

NAMES = """
clip to numbers|clip to tensors|concat|cross|cumulative_prod axis=0 include_initial=True
cumulative_sum axis=1 include_initial=True|diagonal|diff axis=0 n=2|diff with more|matmul of vectors
matmul of a row|matmul of a column|matrix_norm|matrix_norm 1|matrix_norm -inf|meshgrid|moveaxis
outer|reciprocal|repeat|repeat by counts|roll|roll of all|roll of several|stack|std axis=1
std axis=None correction=1|sum dtype=float64|take|take_along_axis|tensordot|tensordot over pairs
tile|trace|unstack|var axis=(0, 1)|vecdot broadcast|vector_norm 1 1|vector_norm 3 None
"""
BY_NAME = {case.name: case for case in CASES}
STEP = 1e-6
BOUND = 1e-6


def weighted(results):
    """Weights for each result, so that the gradient of the weighted sum depends on all elements."""
    draw = np.random.default_rng(9)
    return [draw.uniform(0.5, 2, np.shape(result)) for result in results]


def differences_of(case, x, others):
    """d(weighted sum of the results) / dx, element by element."""
    weights = weighted(flat(case.numpy(x, *others)))

    def total(moved):
        return sum((w * r).sum() for w, r in zip(weights, flat(case.numpy(moved, *others))))

    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = STEP
        gradient[index] = (total(x + step) - total(x - step)) / (2 * STEP)
    return gradient


@pytest.mark.parametrize("name", [n for line in NAMES.split("\n") for n in line.split("|") if n])
def test_gradient(name):
    case = BY_NAME[name]
    x, *others = operands_of(case, "float64")
    x = x + 0.0131  # away from the discontinuities of bounds and magnitudes
    leaf = to_weft(x).requires_grad_()
    results = flat(case.call(weft, leaf, *map(to_weft, others)))
    weights = weighted([to_numpy(result.detach()) for result in results])
    total = sum((weft.sum(r * to_weft(w)) for r, w in zip(results, weights)), weft.zeros(()))
    total.backward()
    theirs = differences_of(case, x, others)
    assert np.abs(to_numpy(leaf.grad) - theirs).max() <= BOUND * np.abs(theirs).max()


def gradient_at(values, function):
    leaf = to_weft(np.array(values)).requires_grad_()
    weft.sum(function(leaf)).backward()
    return to_numpy(leaf.grad).tolist()


def test_the_gradient_of_a_root_of_nothing_is_0():
    equal, zeros = [[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]], [0.0, 0.0]
    first, second = gradient_at(equal, lambda x: weft.std(x, axis=1))
    assert first == [0, 0, 0] and second == pytest.approx([-6**-0.5, 0, 6**-0.5])
    for order in (0.5, 1, 1.5, 2, 3):
        assert gradient_at(zeros, lambda x: weft.linalg.vector_norm(x, ord=order)) == zeros
    for order in (0.5, 3):
        got = gradient_at([0.0, 2.0], lambda x: weft.linalg.vector_norm(x, ord=order))
        assert got == pytest.approx([0, 1])
