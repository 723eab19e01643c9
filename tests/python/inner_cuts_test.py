# SPDX-License-Identifier: Apache-2.0
"""Tensors whose layout cuts an inner factor of a dim: pictures, factories, models, refusals."""

import re

import numpy as np
import pytest
import weft
from weft import Replicate, Shard, nn

draws = np.random.default_rng(5)


def on_ranks(ranks, check):
    return weft.run_ranks(ranks, lambda world: check(weft.DeviceMesh(world, {"a": ranks})))


def placed(array, mesh, *placements):
    return weft.distribute_tensor(weft.asarray(array), mesh, list(placements))


def test_explain_and_pictures():
    def check(mesh):
        inner = placed(np.arange(24.0), mesh, Shard(0, outer=4))
        whole = placed(np.arange(24.0), mesh, Shard(0))
        picture = weft.visualize(inner)
        assert "[0:3] [6:9] [12:15] [18:21]" in str(picture)
        assert "[3:6] [9:12] [15:18] [21:24]" in str(picture)
        # A rectangle for the tensor of each rank, one for each box, and the ground.
        assert picture.svg.count("<rect") == 1 + 2 + 8
        for x, to in ((inner, Shard(0)), (whole, Shard(0, outer=4)), (inner, Replicate())):
            text = weft.explain(x, [to])
            assert text and text.svg().startswith("<svg")
        matrix = placed(np.zeros((4, 12)), mesh, Shard(1, outer=6))
        assert "[0:4, 0:1] [0:4, 2:3] [0:4, 4:5] [0:4, 6:7] and 2 more" in (
            str(weft.visualize(matrix))
        )

    on_ranks(2, check)


@pytest.mark.parametrize("ranks,outer", [(2, 4), (3, 2), (2, 2)])
def test_values_that_follow_from_places(ranks, outer):
    def check(mesh):
        cut = dict(mesh=mesh, placements=[Shard(0, outer=outer)])
        made = {
            "arange": (weft.arange(24, **cut), np.arange(24)),
            "linspace": (weft.linspace(0, 1, 24, **cut), np.linspace(0, 1, 24)),
            "eye": (weft.eye(24, 5, k=-3, **cut), np.eye(24, 5, k=-3)),
        }
        for name, (x, expected) in made.items():
            assert x.placements == (Shard(0, outer=outer),), name
            assert np.allclose(x.full_tensor().numpy(), expected), name
        table = nn.Embedding(12, 4, padding_idx=5)
        layouts = weft.Layouts(parameters={"weight": cut["placements"][0]})
        weft.parallelize(table, mesh["a"], {"": layouts})
        table.materialize()
        rows = np.abs(table.weight.full_tensor().detach().numpy()).max(1)
        assert rows[5] == 0 and (np.delete(rows, 5) > 0).all()

    on_ranks(ranks, check)


def model():
    weft.manual_seed(2)
    made = weft.TransformerModel(
        weft.TransformerConfig(dim=8, layers=1, heads=4, kv_heads=2, ffn=12, vocabulary=12)
    )
    made.materialize()
    return made


@pytest.mark.parametrize(
    "ranks,shape,cut",
    [
        (3, (6, 6), Shard(1, outer=3)),
        (4, (6, 4), Shard(1, outer=2)),
        (2, (8, 8), Shard(0, outer=2)),
    ],
)
def test_grouped_heads_of_tokens_with_an_inner_cut(ranks, shape, cut):
    ids = draws.integers(0, 12, shape)
    expected = model().loss(weft.asarray(ids), weft.asarray(ids)).item()

    def check(mesh):
        sharded = model()
        weft.fully_shard(sharded, mesh, "ddp")
        tokens = placed(ids, mesh, cut)
        loss = sharded.loss(tokens, tokens).full_tensor().item()
        assert loss == pytest.approx(expected, rel=1e-5)

    on_ranks(ranks, check)


@pytest.mark.parametrize("outer", [1, 2, 4])
def test_tokens_in_another_order_with_an_inner_cut(outer):
    ids = draws.integers(0, 12, (2, 8))
    places, segments = np.tile(np.arange(8), (2, 1)), np.zeros((2, 8), int)
    expected = model()(weft.asarray(ids)).detach().numpy()

    def check(mesh):
        sharded = model()
        weft.fully_shard(sharded, mesh, "ddp")
        tokens = [placed(x, mesh, Shard(1, outer=outer)) for x in (ids, segments, places)]
        logits = sharded(*tokens, placed(places, mesh, Replicate()))
        assert np.abs(logits.detach().full_tensor().numpy() - expected).max() < 1e-6

    on_ranks(2, check)


def test_refusals():
    def raises(message, function):
        with pytest.raises(ValueError, match="^" + re.escape(message)):
            function()

    def check(mesh):
        def linear(cut):
            layer = nn.Linear(8, 12)
            layer.materialize()
            layouts = weft.Layouts(parameters={"weight": cut})
            return weft.parallelize(layer, mesh["a"], {"": layouts}) or layer

        raises(
            "fully_shard: shard_placement_fn returns S(0 in 3x*) for ",
            lambda: weft.fully_shard(
                nn.Linear(8, 12), mesh, shard_placement_fn=lambda p: Shard(0, outer=3)
            ),
        )
        with pytest.raises(ValueError, match="expected S without sizes or inner cuts"):
            rows = [(Shard(0, outer=3),) * 3]
            weft.fully_shard(nn.Linear(8, 12), mesh, weft.Strategy("x", rows))
        layer = linear(Shard(0, outer=3))
        optimizer = weft.AdamW8bit(layer.parameters(), least_elements=0.0)
        layer(placed(np.ones((2, 8), "f4"), mesh, Replicate())).sum().backward()
        raises("adamw8bit: parameter weight is laid out as ", optimizer.step)
        block = nn.MoE(
            nn.MoEConfig(dim=6, width=5, experts=4, router=nn.RouterOptions(top_k=2))
        )
        block.materialize()
        names = [n for n, _ in block.named_parameters() if n.startswith("experts.")]
        cuts = {name.split(".", 1)[1]: Shard(0, outer=2) for name in names}
        stacks = weft.Layouts(parameters=cuts)
        weft.parallelize(block, mesh["a"], {"experts": stacks})
        tokens = placed(np.ones((4, 6), "f4"), mesh, Replicate())
        raises("experts: the weights [4, ", lambda: block(tokens))

    on_ranks(2, check)
