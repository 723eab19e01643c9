# SPDX-License-Identifier: Apache-2.0
"""Attention variants and the chunked head equal PyTorch's, whole and on two ranks."""

import numpy as np
import pytest
import weft
from weft.nn import functional as F

torch = pytest.importorskip("torch")

SIZES = {"batch": 2, "s": 6, "t": 6, "heads": 4, "kv_heads": 2, "d": 8}


def operands(seed=0):
    draw = np.random.default_rng(seed)
    n = SIZES
    return [
        draw.standard_normal((n["batch"], n[rows], n[heads], n["d"])).astype(np.float32)
        for rows, heads in (("s", "heads"), ("t", "kv_heads"), ("t", "kv_heads"))
    ]


def causal():
    return torch.ones(SIZES["s"], SIZES["t"], dtype=torch.bool).tril()


def distance():
    return torch.arange(SIZES["s"])[:, None] - torch.arange(SIZES["t"])[None]


DRAW = np.random.default_rng(9)
BOOL = DRAW.random((2, 1, 6, 6)) > 0.3
BOOL[..., 0] = True
ADDED = DRAW.standard_normal((4, 6, 6)).astype(np.float32)
SLOPES = DRAW.random(4).astype(np.float32)
SEGMENTS = np.array([[0, 0, 1, 1, 1, 2], [5, 5, 5, 5, 7, 7]])
SINKS = DRAW.standard_normal(4).astype(np.float32)
SAME = torch.from_numpy(SEGMENTS[:, None, :, None] == SEGMENTS[:, None, None, :])


def with_added(mask, added):
    return torch.where(mask, added, torch.tensor(-torch.inf))


# Each name has weft's options, and PyTorch's whole mask.
VARIANTS = {
    "bool": ({"causal": False, "mask": BOOL}, torch.from_numpy(BOOL)),
    "added": ({"causal": False, "mask": ADDED}, torch.from_numpy(ADDED)),
    "added, causal": ({"mask": ADDED}, with_added(causal(), torch.from_numpy(ADDED))),
    "window": ({"window": 3}, causal() & (distance() < 3)),
    "two-sided window": ({"causal": False, "window": 2}, distance().abs() < 2),
    "segments": ({"segments": SEGMENTS}, causal() & SAME),
    "alibi": (
        {"alibi": SLOPES},
        with_added(causal(), -torch.from_numpy(SLOPES)[:, None, None] * distance().abs()),
    ),
    "scale": ({"scale": 0.3}, causal()),
}


def pytorchs(arrays, mask, scale, dout):
    leaves = [torch.from_numpy(a.copy()).double().requires_grad_() for a in arrays]
    q, k, v = (leaf.transpose(1, 2) for leaf in leaves)
    mask = mask if mask.dtype == torch.bool else mask.double()
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=scale, enable_gqa=True
    ).transpose(1, 2)
    out.backward(torch.from_numpy(dout).double())
    return [out.detach().numpy(), *(leaf.grad.numpy() for leaf in leaves)]


def close(got, expected, bound=1e-5):
    assert np.abs(got - expected).max() <= bound * np.abs(expected).max()


@pytest.mark.parametrize("placement", [None, 0, 1, 2])
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_equal_pytorch(name, placement):
    options, mask = VARIANTS[name]
    arrays = operands()
    dout = np.random.default_rng(3).standard_normal(arrays[0].shape).astype(np.float32)
    expected = pytorchs(arrays, mask, options.get("scale"), dout)

    def body(world):
        mesh = weft.DeviceMesh(world, {"x": world.size})

        def laid_out(array, dim):
            tensor = weft.from_numpy(np.array(array))
            if placement is None:
                return tensor
            cut = weft.Replicate() if dim is None else weft.Shard(dim)
            return weft.distribute(tensor, mesh, {"x": cut})

        of_keys = None if placement == 1 else placement
        leaves = [laid_out(a, dim) for a, dim in zip(arrays, (placement, of_keys, of_keys))]
        for leaf in leaves:
            leaf.requires_grad = True
        extras = {
            key: laid_out(value, None) if isinstance(value, np.ndarray) else value
            for key, value in options.items()
        }
        out = weft.attention(*leaves, **extras)
        weft.backward([out], [laid_out(dout, placement)])
        results = [out.detach(), *(leaf.grad for leaf in leaves)]
        return [(r if placement is None else r.full_tensor()).numpy() for r in results]

    for results in weft.run_ranks(1 if placement is None else 2, body):
        for got, wanted in zip(results, expected):
            close(got, wanted)


def test_sinks_and_softcap_equal_their_formula():
    arrays = operands(4)
    q, k, v = (torch.from_numpy(a.copy()).double().requires_grad_() for a in arrays)
    sinks = torch.from_numpy(SINKS.copy()).double().requires_grad_()
    twice = [x.repeat_interleave(2, 2) for x in (k, v)]
    scores = torch.einsum("bihd,bjhd->bhij", q, twice[0]) / 8**0.5
    scores = with_added(causal(), 1.5 * torch.tanh(scores / 1.5))
    extra = sinks[None, :, None, None].expand(2, 4, 6, 1)
    p = torch.softmax(torch.cat([scores, extra], -1), -1)[..., :-1]
    expected = torch.einsum("bhij,bjhd->bihd", p, twice[1])
    expected.sum().backward()
    leaves = [weft.from_numpy(a) for a in (*arrays, SINKS)]
    for leaf in leaves:
        leaf.requires_grad = True
    got = weft.attention(*leaves[:3], softcap=1.5, sinks=leaves[3])
    weft.sum(got).backward()
    close(got.detach().numpy(), expected.detach().numpy())
    for leaf, wanted in zip(leaves, (q, k, v, sinks)):
        close(leaf.grad.numpy(), wanted.grad.numpy())


def test_an_added_mask_gets_its_gradient():
    arrays = [a.transpose(0, 2, 1, 3).copy() for a in operands(5)]
    mask = torch.from_numpy(ADDED.copy()).double().requires_grad_()
    out = torch.nn.functional.scaled_dot_product_attention(
        *(torch.from_numpy(a).double() for a in arrays), attn_mask=mask, enable_gqa=True
    )
    out.square().sum().backward()
    own = weft.from_numpy(ADDED)
    own.requires_grad = True
    tensors = [weft.from_numpy(a) for a in arrays]
    got = F.scaled_dot_product_attention(*tensors, attn_mask=own, enable_gqa=True)
    weft.sum(weft.square(got)).backward()
    close(own.grad.numpy(), mask.grad.numpy())


LOSSES = [
    {},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"ignore_index": 3},
    {"label_smoothing": 0.2},
    {"weight": True, "label_smoothing": 0.1, "ignore_index": 2},
]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("options", LOSSES)
def test_losses_equal_pytorch(options, chunked):
    draw = np.random.default_rng(2)
    arrays = [draw.standard_normal(shape).astype(np.float32) for shape in ((9, 5), (7, 5))]
    targets = np.arange(9) % 7
    weights = draw.random(7).astype(np.float32)
    kinds = ({**options}, {**options})
    if "weight" in options:
        kinds[0]["weight"] = torch.from_numpy(weights).double()
        kinds[1]["weight"] = weft.from_numpy(weights)
    x, w = (torch.from_numpy(a).double().requires_grad_() for a in arrays)
    expected = torch.nn.functional.cross_entropy(x @ w.T, torch.from_numpy(targets), **kinds[0])
    expected.sum().backward()
    leaves = [weft.from_numpy(a) for a in arrays]
    for leaf in leaves:
        leaf.requires_grad = True
    ids = weft.from_numpy(targets)
    if chunked:
        of_class = {"class_weight": kinds[1].pop("weight")} if "weight" in options else {}
        got = weft.linear_cross_entropy(*leaves, ids, whole_up_to=0, **of_class, **kinds[1])
    else:
        got = F.linear_cross_entropy(*leaves, ids, **kinds[1])
    weft.sum(got).backward()
    close(got.detach().numpy(), expected.detach().numpy(), 1e-6)
    for leaf, wanted in zip(leaves, (x, w)):
        close(leaf.grad.numpy(), wanted.grad.numpy(), 1e-6)


def test_probabilities_as_targets_equal_pytorch():
    draw = np.random.default_rng(2)
    logits, other = (draw.standard_normal((9, 7)).astype(np.float32) for _ in range(2))
    p = torch.softmax(torch.from_numpy(other), -1)
    expected = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits), p, label_smoothing=0.3
    )
    got = F.cross_entropy(
        weft.from_numpy(logits), weft.from_numpy(p.numpy()), label_smoothing=0.3
    )
    np.testing.assert_allclose(got.item(), expected.item(), rtol=1e-6)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x: weft.attention(x, x, x, window=-1), "window is -1, expected 0 or more"),
        (lambda x: weft.attention(x, x, x, softcap=-1.0), "softcap is -1, expected 0 or more"),
        (lambda x: weft.attention(x, x, x, dropout=1.0), "dropout is 1, expected one in"),
        (lambda x: weft.attention(x, x, x, sinks=x), "shape of sinks is .*, expected"),
        (lambda x: weft.attention(x, x, x, mask=x), "shape of mask is .*, expected one that"),
        (
            lambda x: weft.linear_cross_entropy(x[0, 0], x[0, 0], weft.zeros((2,)) == 1),
            "targets .*, expected",
        ),
        (lambda x: F.cross_entropy(x, x, reduction="most"), 'reduction is "most", expected'),
    ],
)
def test_wrong_options_are_named(call, text):
    with pytest.raises(ValueError, match=text):
        call(weft.zeros((2, 3, 4, 5)))
