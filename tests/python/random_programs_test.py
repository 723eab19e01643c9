# SPDX-License-Identifier: Apache-2.0
"""Random programs of ops on sharded tensors give NumPy's values and the gradients of one rank, or
PyTorch's where it is installed."""

import pytest
import random_programs


@pytest.mark.parametrize("first", range(0, 800, 40))
def test_equals_the_reference(first):
    reports = [random_programs.report(seed) for seed in range(first, first + 40)]
    assert not any(reports), next(filter(None, reports))
    refused = reports.count("")
    assert refused <= len(reports) // 2, f"{refused} of {len(reports)} programs were refused"


def test_prints_the_shortest_program(monkeypatch):
    def wrong(library, name):
        function = getattr(library.module, name, None)
        if name == "softmax" and library.mesh is not None:
            return lambda *arguments: function(*arguments) * 1.001
        return function or (lambda x, *arguments: getattr(x, name)(*arguments))

    monkeypatch.setattr(random_programs.Library, "__getattr__", wrong)
    reports = [r for r in map(random_programs.report, range(60)) if r and "softmax" in r]
    assert reports
    for report in reports:
        wrong, seed, *values = report.splitlines()
        assert wrong.startswith("Difference: v")
        assert seed.startswith("seed ")
        assert ["leaf" in value for value in values] == [True, False]
        assert "softmax" in values[1]
