# SPDX-License-Identifier: Apache-2.0
"""torch.nn.functional's compositions compared with NumPy, over meshes, with gradients by central
differences; wrong uses. opinfo_test.py compares them with PyTorch."""

import numpy as np
import pytest
import weft
from weft.nn import functional as F

draws = np.random.default_rng(3)
X = draws.normal(size=(3, 4, 6, 5)) * 2
WEIGHT = draws.normal(size=(2, 5, 5))
expm1, log1p = np.expm1, lambda x: np.log1p(np.exp(x))


def norms(x, axis):
    return np.maximum(np.sqrt((x * x).sum(axis, keepdims=True)), 1e-12)


# name: (of weft, of NumPy), of one operand
CASES = {
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    "elu": (lambda x: F.elu(x, 2.0), lambda x: np.where(x > 0, x, 2 * expm1(x))),
    "celu": (lambda x: F.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * expm1(x / 2))),
    "prelu": (
        lambda x: F.prelu(x, like([0.1, 0.2, 0.3, 0.4], x)),
        lambda x: np.where(x > 0, x, x * np.array([0.1, 0.2, 0.3, 0.4])[:, None, None]),
    ),
    "relu6": (F.relu6, lambda x: np.clip(x, 0, 6)),
    "hardswish": (F.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "softplus": (F.softplus, log1p),
    "logsigmoid": (F.logsigmoid, lambda x: -log1p(-x)),
    "mish": (F.mish, lambda x: x * np.tanh(log1p(x))),
    "softsign": (F.softsign, lambda x: x / (1 + abs(x))),
    "tanhshrink": (F.tanhshrink, lambda x: x - np.tanh(x)),
    "softshrink": (F.softshrink, lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0)),
    "hardshrink": (F.hardshrink, lambda x: np.where(abs(x) > 0.5, x, 0)),
    "threshold": (lambda x: F.threshold(x, 0.3, 7), lambda x: np.where(x > 0.3, x, 7)),
    "glu": (lambda x: F.glu(x, 2), lambda x: x[:, :, :3] / (1 + np.exp(-x[:, :, 3:]))),
    "normalize": (F.normalize, lambda x: x / norms(x, 1)),
    "cosine_similarity": (
        lambda x: F.cosine_similarity(x, x[:1] + 1, 3),
        lambda x: ((x / norms(x, 3)) * ((x[:1] + 1) / norms(x[:1] + 1, 3))).sum(3),
    ),
    "pairwise_distance": (
        lambda x: F.pairwise_distance(x, x[:, :1] * 3),
        lambda x: np.sqrt(((x - x[:, :1] * 3 + 1e-6) ** 2).sum(-1)),
    ),
    "pdist": (
        lambda x: F.pdist(x.reshape((6, 60))),
        lambda x: np.array([
            np.linalg.norm(a - b) for i, a in enumerate(x.reshape(6, 60))
            for b in x.reshape(6, 60)[i + 1 :]
        ]),
    ),
    "bilinear": (
        lambda x: F.bilinear(x, x, like(WEIGHT, x)),
        lambda x: np.einsum("...i,oij,...j->...o", x, WEIGHT, x),
    ),
    "pixel_shuffle": (
        lambda x: F.pixel_shuffle(x, 2),
        lambda x: x.reshape(3, 1, 2, 2, 6, 5).transpose(0, 1, 4, 2, 5, 3).reshape(3, 1, 12, 10),
    ),
    "pixel_unshuffle": (
        lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), lambda x: x,
    ),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), lambda x: x[:, [0, 2, 1, 3]]),
    "pad": (
        lambda x: F.pad(x, (1, 2), value=3.0),
        lambda x: np.pad(x, [(0, 0)] * 3 + [(1, 2)], constant_values=3),
    ),
    "pad circular of a part": (
        lambda x: F.pad(x, (-1, 2), "circular"),
        lambda x: np.pad(x[..., 1:], [(0, 0)] * 3 + [(0, 2)], mode="wrap"),
    ),
    **{
        f"pad {mode}": (
            lambda x, mode=mode: F.pad(x, (1, 2, 3, 0), mode),
            lambda x, of=of: np.pad(x, [(0, 0)] * 2 + [(3, 0), (1, 2)], mode=of),
        )
        for mode, of in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap"))
    },
}


def like(values, x):
    made = weft.asarray(np.asarray(values, dtype="float64"))
    return weft.distribute(made, x.device_mesh) if x.is_sharded else made


def loss_of(ours, x):
    y = ours(x)
    return weft.sum(y * like(np.cos(np.arange(y.size)).reshape(y.shape), y))


@pytest.mark.parametrize("name", CASES)
def test_equals_numpy_with_gradients(name):
    ours, theirs = CASES[name]
    direction = draws.normal(size=X.shape)
    sides = [loss_of(ours, weft.asarray(X + s * 1e-6 * direction)).item() for s in (1, -1)]
    slope = (sides[0] - sides[1]) / 2e-6

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 3})
        for layout in (weft.Shard(0), weft.Shard(1), weft.Shard(3), weft.Replicate()):
            x = weft.distribute(weft.asarray(X.copy()), mesh, [layout]).requires_grad_()
            found, expected = ours(x).full_tensor().detach().numpy(), theirs(X)
            assert found.shape == expected.shape, name
            assert np.abs(found - expected).max() < 1e-12 * max(1, abs(expected).max()), name
            loss_of(ours, x).backward()
            along = (x.grad.full_tensor().numpy() * direction).sum()
            assert abs(along - slope) < 1e-5 * max(1, abs(slope)), name

    weft.run_ranks(3, body)


def test_greatest_numbers():
    x = weft.asarray([-1e4, 1e4]).requires_grad_()
    for function in (F.elu, F.celu, F.selu, F.softplus, F.logsigmoid, F.mish):
        y = function(x)
        (gradient,) = weft.autograd.grad(weft.sum(y), [x])
        assert np.isfinite(y.detach().numpy()).all() and np.isfinite(gradient.numpy()).all()


def test_wrong_uses():
    x = weft.ones(2, 3, 4, 5)
    for call, text in (
        (lambda: F.prelu(x, weft.ones(2)),
         "prelu: weight is [2], expected one number or 3, the channels"),
        (lambda: F.celu(x, 0.0), "celu: alpha is 0, expected another number"),
        (lambda: F.hardtanh(x, 2.0, 1.0), "hardtanh: min_val is 2, expected at most max_val, 1"),
        (lambda: F.softplus(x, 0.0), "softplus: beta is 0, expected another number"),
        (lambda: F.softshrink(x, -1.0), "softshrink: lambd must be at least 0, got -1"),
        (lambda: F.glu(x), "glu: dim 3 of [2, 3, 4, 5] is 5, expected an even size"),
        (lambda: F.pdist(x), "pdist: tensor is [2, 3, 4, 5], expected 2 dims"),
        (lambda: F.local_response_norm(x, 0),
         "local_response_norm: size must be at least 1, got 0"),
        (lambda: F.local_response_norm(x[0, 0], 1),
         "local_response_norm: tensor is [4, 5], expected at least 3 dims"),
        (lambda: F.bilinear(x, x, x[0]),
         "bilinear: weight is [3, 4, 5], expected [o, i, j] for inputs [2, 3, 4, 5] and "
         "[2, 3, 4, 5]"),
        (lambda: F.pixel_shuffle(x, 2),
         "pixel_shuffle: dim 1 of [2, 3, 4, 5] is 3, expected a multiple of 4"),
        (lambda: F.pixel_unshuffle(x[0, 0], 2),
         "pixel_unshuffle: tensor is [4, 5], expected at least 3 dims"),
        (lambda: F.channel_shuffle(x, 0), "channel_shuffle: factor must be at least 1, got 0"),
        (lambda: F.pad(x, (1, 1), "mirror"),
         'pad: mode is "mirror", expected constant, reflect, replicate or circular'),
        (lambda: F.pad(x, (1, 1, 1), "reflect"),
         "pad: number of pads is 3, expected two for each of up to 4 dims"),
        (lambda: F.pad(x, (5, 0), "reflect"),
         'pad: pad of dim 3 is 5, expected at most 4 with mode "reflect"'),
        (lambda: F.pad(x, (-3, -3), "replicate"),
         "pad: dim 3 of [2, 3, 4, 5] is too small for pads -3 and -3, expected at least 6"),
        (lambda: F.pad(x, (1, 1), "circular", 2.0),
         'pad: value is given with mode "circular", expected none'),
    ):  # fmt: skip
        with pytest.raises(ValueError) as raised:
            call()
        assert str(raised.value) == text
