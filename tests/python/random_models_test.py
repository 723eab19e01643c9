# SPDX-License-Identifier: Apache-2.0
"""Random models, sharded in random ways, train as in PyTorch on one device."""

import pytest

pytest.importorskip("torch")

import random_models


# Blocks that are left out in some backwards change the order of modules.
@pytest.mark.filterwarnings("ignore:fully_shard. .*ran in a different order")
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_equals_pytorch(first):
    differences = [random_models.difference(seed) for seed in range(first, first + 20)]
    assert not any(differences), next(filter(None, differences))
