# SPDX-License-Identifier: Apache-2.0
"""Experts from Python: against NumPy, and over a mesh."""

import numpy
import pytest

import weft
from weft.nn import MoE, MoEConfig, RouterOptions


def numpy_moe(x, state, k):
    logits = x @ state["gate.weight"].T
    scores = numpy.exp(logits - logits.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    y = numpy.zeros_like(x)
    for t, row in enumerate(x):
        chosen = numpy.argsort(-scores[t], kind="stable")[:k]
        for e in chosen:
            gate = state["experts.gate_proj"][e] @ row
            up = state["experts.up_proj"][e] @ row
            hidden = gate / (1 + numpy.exp(-gate)) * up
            weight = scores[t, e] / scores[t, chosen].sum()
            y[t] += weight * (state["experts.down_proj"][e] @ hidden)
    return y


def block_and_state():
    block = MoE(MoEConfig(dim=6, width=5, experts=5, router=RouterOptions(top_k=3)))
    block.materialize()
    return block, {name: numpy.asarray(p.detach()) for name, p in block.named_parameters()}


def test_equals_numpy():
    block, state = block_and_state()
    x = numpy.random.default_rng(1).normal(size=(7, 6)).astype("float32")
    y = numpy.asarray(block(weft.asarray(x)).detach())
    assert numpy.allclose(y, numpy_moe(x, state, 3), atol=1e-5)
    assert float(weft.sum(block.load)) == 21 and block.dropped == 0
    block.update_balance()
    assert block.load is None


def test_over_a_mesh_equals_numpy():
    x = numpy.random.default_rng(1).normal(size=(7, 6)).astype("float32")

    def body(world):
        mesh = weft.DeviceMesh(world, {"ep": 3})
        block, state = block_and_state()
        weft.parallelize(block, mesh["ep"], {"experts": weft.ExpertParallel()})
        y = block(weft.distribute(weft.asarray(x), mesh, {"ep": weft.Shard(0)}))
        whole = numpy.asarray(y.detach().full_tensor())
        assert numpy.allclose(whole, numpy_moe(x, state, 3), atol=1e-5)

    weft.run_ranks(3, body)


def losses_in_chunks(chunks, ep):
    config = weft.TransformerConfig(
        dim=8, layers=2, heads=2, kv_heads=2, ffn=12, vocabulary=17, max_sequence=16
    )
    config.experts, config.expert_ffn, config.expert_chunks = 5, 7, chunks
    assert config.expert_chunks == chunks
    assert "chunks" not in weft.config_json(config)
    ids = weft.asarray(numpy.arange(28).reshape(4, 7) * 5 % 17)

    def body(world):
        mesh = weft.DeviceMesh(world, {"ep": ep})
        model = weft.TransformerModel(config)
        weft.parallelize(model, mesh["ep"], weft.expert_styles())
        model.materialize()
        optimizer = weft.optim.AdamW(model.named_parameters(), lr=1e-2)
        rows = weft.distribute(ids, mesh, {"ep": weft.Shard(0)})
        losses = []
        for _ in range(3):
            loss = model.loss(rows, rows)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.detach().full_tensor()))
        return losses

    return weft.run_ranks(ep, body)[0]


def test_chunks_of_a_model_change_nothing():
    expected = losses_in_chunks(1, 1)
    for chunks, ep in [(3, 1), (2, 2), (3, 3)]:
        assert losses_in_chunks(chunks, ep) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="expert chunks must be at least 1, got 0"):
        losses_in_chunks(0, 1)
    config = weft.transformer_config("tiny")
    config.expert_chunks = 2
    with pytest.raises(ValueError, match="expert chunks is 2, expected 1 of a model without"):
        weft.TransformerModel(config)


def test_ops():
    ids = weft.asarray([[0, 2], [2, 1], [2, 0]])
    weights = weft.ones((3, 2, 4))
    rows = weft.rows_by_expert(ids, weights)
    assert numpy.asarray(rows.counts).tolist() == [[2, 1, 3]]
    assert numpy.asarray(rows.tokens).tolist() == [0, 2, 1, 0, 1, 2]
    x = weft.asarray([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    y = weft.grouped_matmul(weft.dispatch_rows(x, rows), weights, rows.counts)
    back = weft.combine_rows(y, rows, weft.ones((3, 2)))
    assert numpy.asarray(back)[:, 0].tolist() == [2.0, 4.0, 6.0]
    assert weft.rows_by_expert(ids, weights, capacity_factor=0.5).dropped == 3
    routing = weft.route_tokens(weft.zeros((4, 3)), RouterOptions(top_k=2))
    assert float(weft.balance_loss(routing)) == pytest.approx(2)
    with pytest.raises(ValueError, match='scores is "max", expected softmax or sigmoid'):
        RouterOptions(scores="max")


def test_options_are_attributes():
    options = RouterOptions(top_k=4, scores="sigmoid")
    assert (options.top_k, options.scores, options.group_score) == (4, "sigmoid", "best")
    options.scores = "softmax"
    assert options == RouterOptions(top_k=4)
    with pytest.raises(ValueError, match='group_score is "worst", expected best or best_two'):
        options.group_score = "worst"
    assert weft.MixedPrecision(compute="bfloat16").compute is weft.bfloat16
    assert weft.Colwise(heads=4).heads == 4
    module = MoE(MoEConfig(dim=4, width=8, experts=2))
    module.config.dim = 5  # a copy
    assert module.config.dim == 4
    config = weft.TransformerConfig(dim=8, layers=1, heads=2, kv_heads=2, ffn=8, vocabulary=8)
    with pytest.raises(ValueError, match='norm is "x", expected rms, rms_plus_one or layer'):
        config.norm = "x"
