# SPDX-License-Identifier: Apache-2.0
"""Sequences that ranks share: their attention and losses are those of one rank."""

import numpy as np
import pytest
import weft

RANKS = [2, 3]
WAYS = ["gather", "ring", "automatic"]
HEADS, KV_HEADS, D, TOKENS = 4, 2, 8, 13
DOCUMENTS = np.array([[0] * 5 + [1] * 8, [3] * 13])


def operands():
    draw = np.random.default_rng(3)
    shapes = [(2, TOKENS, heads, D) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    return [draw.standard_normal(shape).astype(np.float32) for shape in shapes]


def expected_attention(segments):
    """In NumPy, of tokens in their order."""
    q, k, v = (x.astype(np.float64) for x in operands())
    k, v = (np.repeat(x, HEADS // KV_HEADS, axis=2) for x in (k, v))
    scores = np.einsum("bshd,bthd->bhst", q, k) / np.sqrt(D)
    places = np.arange(TOKENS)
    seen = places[:, None] >= places[None]
    seen = seen & (segments[:, None, :, None] == segments[:, None, None, :])
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhst,bthd->bshd", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("packed", [False, True])
def test_ordered_attention(ranks, way, packed):
    segments = DOCUMENTS if packed else np.zeros_like(DOCUMENTS)

    def body(world):
        mesh = weft.DeviceMesh(world, {"cp": ranks})
        ids = weft.distribute(weft.tensor(np.arange(2 * TOKENS).reshape(2, -1)), mesh, {})
        documents = weft.distribute(weft.tensor(segments), mesh, {}) if packed else None
        shared = weft.share_sequence(ids, None, mesh["cp"], documents)
        assert shared.targets is None
        assert (shared.order.segments is not None) == packed
        places = shared.order.places.local().numpy()
        rows = np.arange(2)[:, None]
        np.testing.assert_array_equal(
            shared.ids.full_tensor().local().numpy(), ids.local().numpy()[rows, places]
        )
        cut = {"cp": weft.Shard(1)}
        q, k, v = (weft.distribute(weft.tensor(x[rows, places]), mesh, cut) for x in operands())
        out = weft.ordered_attention(q, k, v, shared.order, way=way)
        assert "gather" in weft.explain_attention(q, k, v)
        made = np.empty_like(operands()[0])
        made[rows, places] = out.full_tensor().local().numpy()
        return made

    for made in weft.run_ranks(ranks, body):
        np.testing.assert_allclose(made, expected_attention(segments), atol=2e-6)


@pytest.mark.parametrize("option", ["mask", "alibi", "dropout"])
def test_what_needs_the_order_is_refused(option):
    q, k, v = (weft.tensor(x) for x in operands())
    places = weft.tensor(np.tile(np.arange(TOKENS), (2, 1)))
    value = {
        "mask": weft.ones((TOKENS, TOKENS), dtype=weft.bool),
        "alibi": weft.ones((HEADS,)),
        "dropout": 0.5,
    }[option]
    with pytest.raises(ValueError, match=f"ordered_attention: {option}|a mask is given"):
        weft.ordered_attention(q, k, v, weft.TokenOrder(places), **{option: value})


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("option", ["mask", "added", "alibi", "dropout", "window"])
def test_tokens_in_their_order_take_every_option(ranks, option):
    draw = np.random.default_rng(5)
    options = {
        "mask": {"mask": draw.random((2, 1, TOKENS, TOKENS)) > 0.2},
        "added": {"mask": draw.standard_normal((HEADS, TOKENS, TOKENS)).astype(np.float32)},
        "alibi": {"alibi": draw.random(HEADS).astype(np.float32)},
        "dropout": {"dropout": 0.3},
        "window": {"window": 4},
    }[option]

    def body(world, place):
        given = {
            name: place(weft.tensor(x), {}) if isinstance(x, np.ndarray) else x
            for name, x in options.items()
        }
        weft.manual_seed(3)
        inputs = [place(weft.tensor(x), {"cp": weft.Shard(1)}) for x in operands()]
        for x in inputs:
            x.requires_grad = True
        out = weft.attention(*inputs, **given)
        (out * out).sum().backward()
        return [x.full_tensor().tolist() for x in (out.detach(), *(x.grad for x in inputs))]

    expected = weft.run_ranks(1, lambda world: body(world, lambda x, cut: x))[0]

    def on_ranks(world):
        mesh = weft.DeviceMesh(world, {"cp": ranks})
        return body(world, lambda x, cut: weft.distribute(x, mesh, cut))

    for made in weft.run_ranks(ranks, on_ranks):
        for one, other in zip(made, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-5)


CONFIG = {"dim": 16, "layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 4, "ffn": 24}


def loss_of(world, axes, way=None):
    mesh = weft.DeviceMesh(world, axes)
    model = weft.TransformerModel(weft.TransformerConfig(vocabulary=61, **CONFIG))
    weft.fully_shard(model, mesh)
    model.materialize()
    ids = weft.distribute(weft.tensor(np.arange(28).reshape(2, 14) * 7 % 61), mesh, {})
    if way is None:
        loss = model.loss(ids[:, :-1], ids[:, 1:])
    else:
        model.set_sequence_way(way)
        shared = weft.share_sequence(ids[:, :-1], ids[:, 1:], mesh["cp"])
        loss = model.loss(
            shared.ids, shared.targets, positions=shared.positions, order=shared.order
        )
    loss.backward()
    return loss.full_tensor().item(), float(weft.clip_grad_norm_(model.parameters(), 1.0))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("way", WAYS)
def test_losses_and_gradients_are_those_of_one_rank(ranks, way):
    expected = weft.run_ranks(1, lambda world: loss_of(world, {"cp": 1}))[0]
    for made in weft.run_ranks(ranks, lambda world: loss_of(world, {"cp": ranks}, way)):
        assert made == pytest.approx(expected, rel=1e-5)


def test_unknown_ways_are_named():
    model = weft.TransformerModel(weft.TransformerConfig(vocabulary=61, **CONFIG))
    with pytest.raises(ValueError, match="set_sequence_way: way is"):
        model.set_sequence_way("zigzag")


def test_stages_share_sequences():
    def step(world):
        axes = {"pp": 2, "cp": 2} if world.size > 1 else {"dp": 1}
        mesh = weft.DeviceMesh(world, axes)
        config = weft.TransformerConfig(vocabulary=61, **CONFIG)
        ids = np.arange(28).reshape(2, 14) * 7 % 61
        if world.size == 1:
            model = weft.TransformerModel(config)
            model.materialize()
            return model.loss(weft.tensor(ids[:, :-1]), weft.tensor(ids[:, 1:])).item()
        ends = weft.pipeline.stage_ends(config, ["model.layers.1"])
        program = weft.pipeline.one_forward_one_backward(2, 1)
        model = weft.pipeline.PipelinedTransformer(mesh, config, program, 13, ends)
        for stage in model.stages:
            weft.fully_shard(stage, model.stage_mesh)
        model.share_sequences("cp", "ring")
        model.materialize()
        rows = weft.distribute(weft.tensor(ids), model.stage_mesh, {})
        return model.differentiate([(rows[:, :-1], rows[:, 1:])], [1.0])[0]

    expected = weft.run_ranks(1, step)[0]
    for made in weft.run_ranks(4, step):
        assert made == pytest.approx(expected, rel=1e-5)
