# SPDX-License-Identifier: Apache-2.0
"""Random programs of ops on sharded tensors give PyTorch's results and gradients."""

import pytest

pytest.importorskip("torch")

import random_programs


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_equals_pytorch(first):
    differences = [random_programs.difference(seed) for seed in range(first, first + 20)]
    assert not any(differences), next(filter(None, differences))
