# SPDX-License-Identifier: Apache-2.0
"""20 steps of a small ResNet of odd sizes, over the batch, channels and space, compared with
PyTorch's (tests/reference/make_images.py)."""

import json
import pathlib

import numpy as np
import pytest
import weft
from weft import nn
from weft.nn import functional as F

REFERENCE = json.loads(
    (pathlib.Path(__file__).parents[1] / "reference" / "images.json").read_text()
)
S, R = weft.Shard, weft.Replicate()


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.short = None
        if stride != 1 or channels != out:
            self.short = nn.Conv2d(channels, out, 1, stride)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 7, 5, 2, 2)
        self.norm = nn.GroupNorm(7, 7)
        self.block1 = Block(7, 7, 1)
        self.block2 = Block(7, 11, 2)
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        y = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        y = self.block2(self.block1(y))
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


def train(model, place):
    """The losses of 20 steps, for batches that `place` puts on a mesh."""
    optimizer = weft.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for x, targets in BATCHES:
        loss = F.cross_entropy(model(place(x)), place(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append((loss.full_tensor() if loss.is_sharded else loss).item())
    return losses


draws = np.random.default_rng(5)
SHAPES = [parameter.shape for parameter in ResNet().parameters()]
VALUES = [
    (draws.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype("float32")
    for shape in SHAPES
]
BATCHES = [
    (draws.standard_normal((7, 3, 29, 23)).astype("float32"), draws.integers(0, 5, 7))
    for _ in range(20)
]


def filled():
    model = ResNet()
    model.materialize("cpu")
    names = [name for name, _ in model.named_parameters()]
    state = {name: weft.from_numpy(x.copy()) for name, x in zip(names, VALUES)}
    model.load_state_dict(state, strict=False)
    return model


def check(model, losses):
    np.testing.assert_allclose(losses, REFERENCE["losses"], rtol=1e-4, atol=1e-4)
    for name, tensor in model.state_dict().items():
        whole = (tensor.full_tensor() if tensor.is_sharded else tensor).numpy().astype("float64")
        sums = [whole.sum(), (whole * whole).sum()]
        np.testing.assert_allclose(sums, REFERENCE["sums"][name], rtol=1e-3, atol=1e-3)


def test_one_device():
    model = filled()
    check(model, train(model, weft.from_numpy))


WAYS = {
    "batch": (3, {"dp": 3}, [S(0)], "full_shard"),
    "height": (3, {"dp": 3}, [S(2)], "ddp"),
    "batch and width": (4, {"dp": 2, "sp": 2}, [S(0), S(3)], "ddp"),
    "height and width": (4, {"dp": 2, "sp": 2}, [S(2), S(3)], "full_shard"),
}


@pytest.mark.parametrize("way", WAYS)
def test_ranks(way):
    ranks, axes, cuts, strategy = WAYS[way]

    def body(world):
        mesh = weft.DeviceMesh(world, axes)
        model = filled()
        weft.fully_shard(model, mesh, strategy=strategy)

        def place(x):
            layout = cuts if x.ndim == 4 else [cut if cut == S(0) else R for cut in cuts]
            return weft.distribute(weft.from_numpy(x.copy()), mesh, layout)

        check(model, train(model, place))

    weft.run_ranks(ranks, body)
