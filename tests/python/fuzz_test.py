# SPDX-License-Identifier: Apache-2.0
"""Random calls of all functions return or raise one sentence; none ends the process."""

import fuzz


def test_random_calls():
    kinds, bad = fuzz.in_child(15000, seed=7)
    assert bad == {}
    assert kinds["returned"] > 1000
