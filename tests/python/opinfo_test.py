# SPDX-License-Identifier: Apache-2.0
"""The variants of PyTorch's OpInfo that were right in all samples stay right."""

import importlib.util

import opinfo
import pytest

RIGHT = opinfo.RIGHT.read_text().split()
PART = 40


MISSING = [n for n in ("torch", "expecttest", "scipy") if importlib.util.find_spec(n) is None]


@pytest.mark.skipif(bool(MISSING), reason=f"PyTorch's samples need {', '.join(MISSING)}")
@pytest.mark.parametrize("start", range(0, len(RIGHT), PART))
def test_pytorchs_samples(start):
    names = RIGHT[start : start + PART]
    found = opinfo.verdicts("^(" + "|".join(map(opinfo.re.escape, names)) + ")$", samples=10)
    assert {name: found[name] for name in names if found[name][0] != "right"} == {}
