# SPDX-License-Identifier: Apache-2.0
"""The row of padding in a table of embeddings, as PyTorch computes it: its values are read, and its
gradient is 0 on any layout."""

import numpy as np
import pytest
import weft
from weft import Replicate, Shard, nn
from weft.nn import functional as F

IDS = np.array([[0, 3, 6, 3, 1], [3, 0, 6, 5, 0]])
TABLE = np.random.default_rng(1).normal(size=(7, 4))
GRADIENT = np.random.default_rng(2).normal(size=(2, 5, 4))


def expected(padding):
    gradient = np.zeros_like(TABLE)
    np.add.at(gradient, IDS, GRADIENT)
    if padding is not None:
        gradient[padding] = 0
    return gradient


@pytest.mark.parametrize("padding", [None, 0, 3, 6, -1, -7])
def test_rows_and_gradient(padding):
    table = weft.asarray(TABLE).requires_grad_()
    rows = F.embedding(weft.asarray(IDS), table, padding)
    assert (rows.detach().numpy() == TABLE[IDS]).all()
    rows.backward(weft.asarray(GRADIENT))
    assert np.allclose(table.grad.numpy(), expected(padding))


@pytest.mark.parametrize("padding", [3, -7])
def test_a_gradient_that_is_no_number_does_not_reach_the_row(padding):
    table = weft.asarray(TABLE).requires_grad_()
    gradient = np.where((IDS == padding % 7)[..., None], np.nan, GRADIENT)
    F.embedding(weft.asarray(IDS), table, padding).backward(weft.asarray(gradient))
    assert np.allclose(table.grad.numpy(), expected(padding))


LAYOUTS = [(axes, table, ids) for axes in ({"x": 2}, {"x": 3}, {"x": 5}, {"x": 2, "y": 2})
           for table in (Shard(0), Shard(1), Replicate())
           for ids in (Shard(0), Shard(1), Replicate())]


@pytest.mark.parametrize("axes, table, ids", LAYOUTS)
def test_any_layout(axes, table, ids):
    def body(world):
        mesh = weft.DeviceMesh(world, axes)
        last = list(axes)[-1]
        weight = weft.distribute(weft.asarray(TABLE), mesh, {last: table}).requires_grad_()
        given = weft.distribute(weft.asarray(IDS), mesh, {list(axes)[0]: ids})
        rows = F.embedding(given, weight, 3)
        assert np.allclose(rows.detach().full_tensor().numpy(), TABLE[IDS])
        (rows * weft.distribute(weft.asarray(GRADIENT), mesh, {})).sum().backward()
        return weight.grad.full_tensor().numpy()

    for gradient in weft.run_ranks(int(np.prod(list(axes.values()))), body):
        assert np.allclose(gradient, expected(3))


def test_a_layer_begins_with_zeros_and_stays():
    layer = nn.Embedding(7, 4, -1, device="cpu")
    assert layer.padding_idx == 6 and nn.Embedding(7, 4).padding_idx is None
    assert (layer.weight.detach().numpy() == 0).all(1).tolist() == [False] * 6 + [True]
    before = layer.weight.detach().numpy().copy()
    optimizer = weft.optim.SGD(layer.parameters(), lr=0.5)
    (layer(weft.asarray(IDS)) * weft.asarray(GRADIENT.astype(np.float32))).sum().backward()
    optimizer.step()
    assert np.allclose(layer.weight.detach().numpy(), before - 0.5 * expected(6), atol=1e-6)
    import copy

    assert copy.deepcopy(layer).padding_idx == 6


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("style", [None, weft.Rowwise, weft.Colwise])
def test_a_sharded_layer(ranks, style):
    def body(world):
        mesh = weft.DeviceMesh(world, {"x": ranks})
        weft.manual_seed(3)
        net = nn.Sequential(nn.Embedding(7, 4, 3))
        if style is None:
            weft.fully_shard(net, mesh)
        else:
            weft.parallelize(net, mesh, {"0": style(output_layouts=Replicate())})
        net.materialize()
        ids = weft.distribute(weft.asarray(IDS), mesh, {})
        weights = weft.distribute(weft.asarray(GRADIENT.astype(np.float32)), mesh, {})
        (net(ids) * weights).sum().backward()
        (parameter,) = net.parameters()
        table = net.state_dict()["0.weight"]
        return table.full_tensor().numpy(), parameter.grad.full_tensor().numpy()

    for table, gradient in weft.run_ranks(ranks, body):
        assert (table == 0).all(1).tolist() == [row == 3 for row in range(7)]
        assert (gradient[3] == 0).all() and np.allclose(gradient, expected(3), atol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_a_transformer_of_a_config_with_a_token_of_padding(tied, tmp_path):
    sizes = dict(dim=16, layers=1, heads=2, kv_heads=2, ffn=8, vocabulary=7, tied=tied)
    ids = weft.asarray(IDS)
    gradients = []
    for padding in (None, 3):
        weft.manual_seed(1)
        config = nn.TransformerConfig(**sizes)
        config.padding = padding
        model = nn.TransformerModel(config)
        model.materialize()
        if padding is not None:
            model.load_state_dict(state)
        state = {n: t.clone() for n, t in model.state_dict().items()}
        model.loss(ids[:, :-1], ids[:, 1:]).backward()
        gradients.append(dict(model.named_parameters())["model.embed_tokens.weight"].grad.numpy())
    whole, without = gradients
    others = [row for row in range(7) if row != 3]
    assert np.allclose(whole[others], without[others], atol=1e-6)
    assert np.abs(whole[3] - without[3]).max() > 1e-4
    # The head's gradient still reaches the row.
    assert (np.abs(without[3]).max() > 0) == tied


def test_what_is_not_offered_is_named():
    for options, text in (({"max_norm": 1.0}, "max_norm is 1.0, expected None"),
                          ({"scale_grad_by_freq": True}, "scale_grad_by_freq is True, expected F"),
                          ({"sparse": True}, "sparse is True, expected False")):
        with pytest.raises(ValueError, match="embedding: " + text):
            nn.Embedding(7, 4, **options)
        with pytest.raises(ValueError, match="embedding: " + text):
            F.embedding(weft.asarray(IDS), weft.asarray(TABLE), **options)
    for padding in (7, -8):
        text = f"embedding: padding is {padding}, expected one from -7 to 6"
        with pytest.raises(ValueError, match=text):
            nn.Embedding(7, 4, padding)
        with pytest.raises(ValueError, match=text):
            F.embedding(weft.asarray(IDS), weft.asarray(TABLE), padding)
    layer = nn.Embedding(7, 4, None, None, 2.0, False, False)
    assert layer.embedding_dim == 4
