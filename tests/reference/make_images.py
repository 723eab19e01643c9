#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/reference/images.json: 20 steps of a small ResNet of odd sizes by PyTorch, its
losses and the statistics that it ends with. Values and batches are drawn by NumPy, as in
tests/python/resnet_test.py.

    make_images.py [FILE]"""

import json
import pathlib
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


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


def main():
    draws = np.random.default_rng(5)
    model = ResNet()
    with torch.no_grad():
        for parameter in model.parameters():
            shape = tuple(parameter.shape)
            values = draws.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))
            parameter.copy_(torch.from_numpy(values.astype("float32")))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(20):
        x = draws.standard_normal((7, 3, 29, 23)).astype("float32")
        targets = draws.integers(0, 5, 7)
        loss = F.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    state = {
        name: [float(x.double().sum()), float(x.double().square().sum())]
        for name, x in model.state_dict().items()
    }
    path = pathlib.Path(__file__).parent / "images.json"
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else path
    path.write_text(json.dumps({"losses": losses, "sums": state}, indent=1) + "\n")


if __name__ == "__main__":
    main()
