# SPDX-License-Identifier: Apache-2.0
"""Keys of config.json mean what transformers' code of the family takes them for: a sample of the
cases of config_keys.py, where transformers is installed."""

import random

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import config_keys


@pytest.mark.parametrize("family", config_keys.FAMILIES)
def test_weft_computes_the_same_or_refuses(family, tmp_path):
    cases = list(config_keys.cases_of(family))
    for place, key, value in random.Random(family).sample(cases, min(25, len(cases))):
        found = config_keys.outcome(config_keys.changed(family, place, key, value), tmp_path)
        assert not found.startswith("differs"), (place, key, value, found)
