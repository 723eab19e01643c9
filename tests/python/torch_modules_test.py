# SPDX-License-Identifier: Apache-2.0
"""Losses and MultiheadAttention as modules of torch.nn, compared with PyTorch, if installed."""

import copy
import pickle

import numpy as np
import pytest
import weft
from weft import nn

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(3)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def probability(*shape):
    return (RANDOM.random(shape) * 0.98 + 0.01).astype(np.float32)


X, Y = normal(5, 7), normal(5, 7)
TARGETS = np.array([0, 6, 2, -100, 3])
LOG = np.log(probability(5, 7))
CASES = [
    ("L1Loss", X, Y, {}), ("SmoothL1Loss", X, Y, {"beta": 0.4}),
    ("SmoothL1Loss", X, Y, {"beta": 0}),
    ("HuberLoss", X, Y, {"delta": 0.7}), ("MSELoss", X, Y, {}),
    ("BCELoss", probability(5, 7), probability(5, 7), {}),
    ("BCELoss", np.eye(3, dtype=np.float32), probability(3, 3), {"weight": probability(3)}),
    ("BCEWithLogitsLoss", 30 * X, probability(5, 7), {}),
    ("BCEWithLogitsLoss", X, probability(5, 7),
     {"weight": probability(7), "pos_weight": 1 + probability(7)}),
    ("KLDivLoss", LOG, probability(5, 7), {}), ("KLDivLoss", LOG, LOG[::-1].copy(),
                                                {"log_target": True}),
    ("NLLLoss", LOG, TARGETS, {}), ("NLLLoss", LOG, TARGETS, {"weight": probability(7)}),
    ("NLLLoss", LOG, np.array([0, 6, 2, 2, 3]), {"ignore_index": 2}),
    ("CrossEntropyLoss", X, TARGETS, {"weight": probability(7), "label_smoothing": 0.1}),
    ("CrossEntropyLoss", normal(2, 3, 5), np.array([[0, 2, 1, -100, 2], [1, 1, 0, 0, 2]]), {}),
    ("CrossEntropyLoss", normal(2, 3, 4, 5), RANDOM.integers(0, 3, (2, 4, 5)), {}),
    ("HingeEmbeddingLoss", X, np.sign(Y), {"margin": 0.7}), ("SoftMarginLoss", X, np.sign(Y), {}),
    ("MultiMarginLoss", X, TARGETS % 7, {}),
    ("MultiMarginLoss", X, TARGETS % 7, {"p": 2, "margin": 0.5, "weight": probability(7)}),
    ("MultiLabelMarginLoss", normal(3, 4), np.array([[3, 0, -1, 1], [-1, 2, 2, 2], [0, 1, 2, 3]]),
     {}),
    ("MultiLabelSoftMarginLoss", X, (Y > 0).astype(np.float32), {"weight": probability(7)}),
    ("PoissonNLLLoss", X, np.abs(3 * Y), {"full": True}),
    ("PoissonNLLLoss", probability(5, 7), np.abs(3 * Y), {"log_input": False}),
]
# With three inputs.
MORE_CASES = [
    ("MarginRankingLoss", X, Y, np.sign(normal(5, 7)), {"margin": 0.3}),
    ("CosineEmbeddingLoss", X, Y, np.array([1, -1, 1, -1, -1], np.float32), {"margin": -0.4}),
    ("TripletMarginLoss", X, Y, normal(5, 7), {}),
    ("TripletMarginLoss", X, Y, normal(5, 7), {"swap": True, "p": 1, "margin": 2.5}),
    ("GaussianNLLLoss", X, Y, probability(5, 7), {"full": True}),
    ("GaussianNLLLoss", X, Y, probability(5, 7), {"eps": 0.5}),
]


def close(got, want):
    got, want = got.detach().numpy(), want.detach().numpy()
    assert np.abs(got - want).max() <= 1e-5 * max(np.abs(want).max(), 1e-3)


@pytest.mark.parametrize("name, x, y, options", CASES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_are_those_of_pytorch(name, x, y, options, reduction):
    def made(module, tensor):
        given = {n: tensor(v) if isinstance(v, np.ndarray) else v for n, v in options.items()}
        return getattr(module, name)(reduction=reduction, **given)

    ours, theirs = weft.tensor(x).requires_grad_(), torch.tensor(x).requires_grad_()
    got = made(nn, weft.tensor)(ours, weft.tensor(y))
    want = made(torch.nn, torch.tensor)(theirs, torch.tensor(y))
    close(got, want)
    if name == "BCELoss" and options:
        return  # PyTorch's gradient is 1e12 where the probability of the right class is 0
    got.sum().backward()
    want.sum().backward()
    close(ours.grad, theirs.grad)


@pytest.mark.parametrize("name, x, y, z, options", MORE_CASES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_three_inputs_are_those_of_pytorch(name, x, y, z, options, reduction):
    ours = [weft.tensor(v).requires_grad_() for v in (x, y, z)]
    theirs = [torch.tensor(v).requires_grad_() for v in (x, y, z)]
    got = getattr(nn, name)(reduction=reduction, **options)(*ours)
    want = getattr(torch.nn, name)(reduction=reduction, **options)(*theirs)
    close(got, want)
    got.sum().backward()
    want.sum().backward()
    for i in range(3 if name in ("TripletMarginLoss", "GaussianNLLLoss") else 2):
        close(ours[i].grad, theirs[i].grad)


def test_batchmean():
    got = nn.KLDivLoss(reduction="batchmean")(weft.tensor(LOG), weft.tensor(np.exp(LOG[::-1])))
    want = torch.nn.KLDivLoss(reduction="batchmean")(torch.tensor(LOG),
                                                     torch.tensor(np.exp(LOG[::-1])))
    close(got, want)


def test_wrong_losses_are_refused():
    with pytest.raises(ValueError, match='l1_loss: reduction is "all", expected mean, sum'):
        nn.L1Loss(reduction="all")(weft.tensor(X), weft.tensor(Y))
    with pytest.raises(ValueError, match="huber_loss: target is \\[5, 6\\], expected \\[5, 7\\]"):
        nn.HuberLoss()(weft.tensor(X), weft.tensor(Y[:, :6]))
    with pytest.raises(ValueError, match="huber_loss: delta is 0, expected a number above 0"):
        nn.HuberLoss(delta=0)(weft.tensor(X), weft.tensor(Y))
    with pytest.raises(ValueError, match="smooth_l1_loss: beta is -1, expected .* at least 0"):
        nn.SmoothL1Loss(beta=-1)(weft.tensor(X), weft.tensor(Y))
    with pytest.raises(ValueError, match="nll_loss: target is .*, expected integers \\[5\\]"):
        nn.NLLLoss()(weft.tensor(X), weft.tensor(Y))
    with pytest.raises(ValueError, match="nll_loss: weight is \\[3\\], expected \\[7\\]"):
        nn.NLLLoss(weft.ones(3))(weft.tensor(LOG), weft.tensor(TARGETS))
    with pytest.raises(ValueError, match="kl_div: input is \\[\\], expected a batch"):
        nn.KLDivLoss(reduction="batchmean")(weft.tensor(1.0), weft.tensor(1.0))
    with pytest.raises(ValueError, match="multi_margin_loss: p is 3, expected 1 or 2"):
        nn.MultiMarginLoss(p=3)(weft.tensor(X), weft.tensor(TARGETS % 7))
    for kind, shape in ("multi_margin_loss", "[5]"), ("multilabel_margin_loss", "[5]"):
        with pytest.raises(ValueError, match=f"{kind}: input is .*, expected .rows, classes."):
            getattr(nn.functional, kind)(weft.ones(5), weft.ones(5))
    for kind in "soft_margin_loss", "hinge_embedding_loss":
        with pytest.raises(ValueError, match=f"{kind}: target is .5, 6., expected .5, 7."):
            getattr(nn.functional, kind)(weft.tensor(X), weft.tensor(Y[:, :6]))
    with pytest.raises(ValueError, match="cosine_embedding_loss: input is .*, expected vectors"):
        nn.functional.cosine_embedding_loss(weft.ones(()), weft.ones(()), weft.ones(()))
    with pytest.raises(ValueError, match="soft_margin_loss: reduction is \"all\", expected mean"):
        nn.SoftMarginLoss(reduction="all")(weft.tensor(X), weft.tensor(Y))
    with pytest.raises(TypeError, match="L1Loss: "):
        nn.L1Loss(beta=1)


SIZES = [{}, {"bias": False}, {"kdim": 5, "vdim": 6}, {"batch_first": True}]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("masks", ["none", "padding", "plane", "planes", "both", "added", "causal"])
def test_attention_is_that_of_pytorch(sizes, masks):
    torch.manual_seed(1)
    theirs = torch.nn.MultiheadAttention(8, 2, **sizes)
    ours = nn.MultiheadAttention(8, 2, **sizes)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    first = sizes.get("batch_first", False)
    shape = (lambda n: (3, n)) if first else (lambda n: (n, 3))
    keys = 4 if masks == "causal" else 7
    q, k, v = normal(*shape(4), 8), normal(*shape(keys), sizes.get("kdim", 8)), None
    v = normal(*shape(keys), sizes.get("vdim", 8))
    padding = np.zeros((3, keys), bool)
    padding[1, 5:] = padding[2, 3:] = True
    plane = np.triu(np.ones((4, keys), bool), 3)
    given = {
        "none": {}, "padding": {"key_padding_mask": padding}, "plane": {"attn_mask": plane},
        "planes": {"attn_mask": np.stack([np.roll(plane, i, 1) for i in range(6)])},
        "both": {"key_padding_mask": padding, "attn_mask": plane},
        "added": {"key_padding_mask": np.where(padding, -3, 0).astype(np.float32),
                  "attn_mask": normal(4, keys)},
        "causal": {"attn_mask": np.triu(np.ones((4, 4), bool), 1), "is_causal": True},
    }[masks]
    for weights in (False, True):
        def outputs(module, tensor):
            words = {n: m if isinstance(m, bool) else tensor(m) for n, m in given.items()}
            inputs = [tensor(x) for x in (q, k, v)]
            return module(*inputs, need_weights=weights, **words)

        got, want = outputs(ours, weft.tensor), outputs(theirs, torch.tensor)
        close(got[0], want[0])
        if weights:
            close(got[1], want[1])
        else:
            assert got[1] is None
    got[0].sum().backward()
    want[0].sum().backward()
    for name, parameter in ours.named_parameters():
        close(parameter.grad, dict(theirs.named_parameters())[name].grad)


def test_wrong_attention_is_refused():
    with pytest.raises(ValueError, match="multihead_attention: dim is 7, expected a multiple of 2"):
        nn.MultiheadAttention(7, 2)
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), weft.tensor(normal(3, 4, 8))
    with pytest.raises(ValueError, match="key_padding_mask is \\[3, 5\\], expected \\[3, 4\\]"):
        attention(x, x, x, key_padding_mask=weft.zeros((3, 5), dtype="bool"))
    with pytest.raises(ValueError, match="attn_mask is \\[4, 5\\], expected \\[4, 4\\]"):
        attention(x, x, x, attn_mask=weft.zeros((4, 5), dtype="bool"))


def test_state_dicts_pickle():
    model = nn.TransformerModel(weft.TransformerConfig(dim=8, layers=2, heads=2, kv_heads=1, ffn=9,
                                                       vocabulary=11))
    model.materialize()
    state = model.state_dict()
    for back in (pickle.loads(pickle.dumps(state)), copy.deepcopy(state)):
        assert list(back) == list(state)
        for name, tensor in back.items():
            assert tensor.dtype == state[name].dtype
            assert (tensor.numpy() == state[name].numpy()).all()
        model.load_state_dict(back)


def test_a_summary_has_a_line_for_equal_parameters():
    model = nn.TransformerModel(weft.TransformerConfig(dim=8, layers=3, heads=2, kv_heads=1, ffn=9,
                                                       vocabulary=11))
    text = weft.summary(model)
    lines = text.splitlines()
    assert lines[0].split() == ["parameter", "count", "shape", "dtype", "elements", "trained",
                                "layout", "bytes"]
    row = next(line for line in lines if "q_proj" in line)
    assert row.split() == ["model.layers.*.self_attn.q_proj.weight", "3", "[8,", "8]", "f32", "192",
                           "yes", "-", "768"]
    total = sum(p.numel() for p in model.parameters())
    assert lines[-1].startswith(f"{total} elements, ")
