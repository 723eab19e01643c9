# SPDX-License-Identifier: Apache-2.0
"""softmax, log_softmax, logsumexp and cross_entropy of rows with inf, -inf and NaN, their
gradients, and cross_entropy where no row counts: PyTorch's values (torch_rules.json), whole and
sharded; labels and indices out of range."""

import json
import pathlib

import numpy as np
import pytest
import weft
import weft.torch as T
from weft.nn import functional as F

RULES = json.loads((pathlib.Path(__file__).parent / "torch_rules.json").read_text())
ROWS, LOSSES = RULES["rows"], RULES["losses"]
X = np.array(ROWS["x"], "float32")
TARGETS = np.arange(len(X)) % 3
LAYOUTS = {
    "whole": None,
    "rows": {"a": weft.Shard(0)},
    "columns": {"a": weft.Shard(1)},
    "both": {"a": weft.Shard(1), "b": weft.Shard(0)},
}
OF_ROWS = {
    "softmax": lambda x, t: T.softmax(x, 1),
    "log_softmax": lambda x, t: T.log_softmax(x, 1),
    "logsumexp": lambda x, t: T.logsumexp(x, 1),
    "cross_entropy": lambda x, t: F.cross_entropy(x, t, reduction="none"),
}


def laid_out(mesh, layout, values, is_target=False):
    made = weft.from_numpy(np.array(values))
    if layout is None:
        return made
    rows = {axis: p for axis, p in layout.items() if p == weft.Shard(0)}
    return weft.distribute(made, mesh, rows if is_target else layout)


def whole(x):
    return (x.full_tensor() if x.is_sharded else x).numpy()


def run(layout, function):
    """function(mesh) on one rank, or on 2 x 2."""
    if layout is None:
        return [function(None)]
    return weft.run_ranks(4, lambda world: function(weft.DeviceMesh(world, {"a": 2, "b": 2})))


def with_gradient(layout, function, x, t):
    def body(mesh):
        given = laid_out(mesh, layout, x).requires_grad_()
        made = function(given, laid_out(mesh, layout, t, True))
        weights = np.arange(1, made.numel() + 1, dtype="float32").reshape(tuple(made.shape))
        weights = laid_out(mesh, None if layout is None else {}, weights)
        (made * weights).sum().backward()
        return whole(made.detach()), whole(given.grad)

    return run(layout, body)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_that_are_not_finite(name, layout):
    value, gradient = (np.array(one, "float32") for one in ROWS[name])
    for made, of_x in with_gradient(LAYOUTS[layout], OF_ROWS[name], X, TARGETS):
        np.testing.assert_allclose(made, value, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(of_x, gradient, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_head_that_stores_no_logits_has_the_losses(layout):
    value = np.array(ROWS["cross_entropy"][0], "float32")
    finite = ~np.isnan(X).any(1)

    def body(mesh):
        layout_of = LAYOUTS[layout]
        rows = laid_out(mesh, layout_of and {"b": weft.Shard(0)}, X[finite])
        bias = np.zeros(3, "float32")
        weight = laid_out(mesh, layout_of and {"a": weft.Shard(0)}, np.eye(3, dtype="float32"))
        targets = laid_out(mesh, layout_of and {"b": weft.Shard(0)}, TARGETS[finite])
        return whole(weft.linear_cross_entropy(
            rows, weight, targets, bias=laid_out(mesh, layout_of and {"a": weft.Shard(0)}, bias),
            reduction="none", whole_up_to=0,
        ))

    # inf * 0 of the product is NaN: a row with an inf has a NaN logit.
    value = np.where(np.isinf(X[finite]).any(1), np.nan, value[finite])
    for made in run(LAYOUTS[layout], body):
        np.testing.assert_allclose(made, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("head", [False, True])
def test_losses_where_no_row_counts(head, layout):
    x, class_weight = (np.array(LOSSES[key], "float32") for key in ("x", "weight"))
    for targets, named, weighted, value, gradient in LOSSES["cases"]:

        def loss(logits, t):
            weight = weft.from_numpy(class_weight) if weighted else None
            if weight is not None and logits.is_sharded:
                weight = weft.distribute(weight, logits.device_mesh)
            if not head:
                return F.cross_entropy(logits, t, weight, **named)
            unit = weft.eye(5)
            if logits.is_sharded:
                unit = weft.distribute(unit, logits.device_mesh, {"a": weft.Shard(0)})
            return weft.linear_cross_entropy(
                logits, unit, t, class_weight=weight, whole_up_to=0, **named
            )

        for made, of_x in with_gradient(LAYOUTS[layout], loss, x, np.array(targets)):
            case = f"{targets} {named} {weighted}"
            np.testing.assert_allclose(made, np.array(value), 1e-4, 1e-5, err_msg=case)
            np.testing.assert_allclose(of_x, np.array(gradient), 1e-4, 1e-5, err_msg=case)


BAD = {
    "cross_entropy": lambda x, i: F.cross_entropy(x, i),
    "linear_cross_entropy": lambda x, i: weft.linear_cross_entropy(x, x[:4] * 1, i, whole_up_to=0),
    "embedding": lambda x, i: F.embedding(i, x),
    "take": lambda x, i: weft.take(x, i, axis=0),
    "gather": lambda x, i: T.gather(x, 1, i.reshape(-1, 1)),
    "index_select": lambda x, i: T.index_select(x, 0, i),
    "one_hot": lambda x, i: F.one_hot(i, 4),
    "getitem": lambda x, i: x[i],
}


@pytest.mark.parametrize("cut", ["labels", "both", "columns", "labels over b"])
@pytest.mark.parametrize("value", [4, 999, -7])
@pytest.mark.parametrize("name", BAD)
def test_a_label_out_of_range_raises_on_all_ranks(name, value, cut):
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2, "b": 2})
        layout = {
            "labels": ({}, {"a": weft.Shard(0)}),
            "both": ({"a": weft.Shard(0)}, {"a": weft.Shard(0)}),
            "columns": ({"a": weft.Shard(1)}, {}),
            "labels over b": ({"a": weft.Shard(1)}, {"b": weft.Shard(0)}),
        }[cut]
        x = weft.distribute(weft.ones(4, 4), mesh, layout[0])
        labels = weft.distribute(weft.tensor([0, 1, 2, value]), mesh, layout[1])
        with pytest.raises((ValueError, IndexError)) as raised:
            BAD[name](x, labels)
        again = weft.distribute(weft.ones(8), mesh, {"a": weft.Shard(0)}).sum()
        return str(raised.value), again.full_tensor().item()

    made = weft.run_ranks(4, body, deadline=20)
    assert len(set(made)) == 1 and made[0][1] == 8
