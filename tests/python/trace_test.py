# SPDX-License-Identifier: Apache-2.0
"""A trace names modules by their paths, with shapes, and counts memory."""

import json

import weft
from weft import nn


def events_of(path):
    return json.loads(path.read_text())["traceEvents"]


def test_a_trace_names_modules_and_counts_memory(tmp_path):
    file = tmp_path / "trace.json"
    model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))

    def body(world):
        x = weft.ones(5, 4)
        with weft.trace(world, file):
            model(x).sum().backward()

    weft.run_ranks(1, body)
    events = events_of(file)
    modules = {e["name"]: e["args"] for e in events if e.get("cat") == "span,module"}
    assert set(modules) == {"model", "0", "1", "1.0", "1.1"}
    assert modules["1.1"] == {"shapes": "f32 [5, 3]", "bytes": 60}
    linears = [e["args"] for e in events if e["name"] == "linear_bias"]
    assert [args["module"] for args in linears if "module" in args][:2] == ["0", "1.1"]
    assert linears[0]["shapes"] == "f32 [5, 4], f32 [3, 4], f32 [3]"
    assert linears[0]["bytes_moved"] == 0
    counters = [e for e in events if e["ph"] == "C"]
    assert len(counters) == 5 and all(e["args"]["cpu"] > 0 for e in counters)
