# SPDX-License-Identifier: Apache-2.0
"""Checks for the tests of a custom op (weft.Op). Both run the op's samples, or one sample that is
made from its rule, and raise AssertionError with a report when the op is wrong.

    def test_distances():
        weft.testing.gradcheck(distances)
        weft.testing.sweep(distances)
"""

from weft import _weft

__all__ = ["gradcheck", "sweep"]


def _checked(outcome):
    passed, report = outcome
    if not passed:
        raise AssertionError(report)
    return report


def gradcheck(op, *, seed=5):
    """Compares the op's backward with central differences of its forward in float64 (float32 for
    an op that does not take float64), for every floating operand. Returns a report as text."""
    return _checked(_weft._gradcheck(op, seed))


def sweep(op, mesh=None, *, most=20000, percent=100, seed=1):
    """Runs the op with its operands in every layout over the mesh ({"a": 2, "b": 2}; by default 4,
    2 x 2, 3 and 2 x 1 x 2 ranks, of which WEFT_SWEEP_PERCENT is the percentage that runs), on
    threads. Compares results, gradients, layouts and traffic with one device and with the rule.
    Above `most` combinations, and below 100 percent, the seed selects those that run. Returns a
    report as text."""
    return _checked(_weft._sweep(op, list((mesh or {}).items()), most, percent, seed))
