# SPDX-License-Identifier: Apache-2.0
"""Trains a vision transformer to find the bright quarter of an image, fully sharded.

python examples/vit.py --ranks 4 --steps 300
python examples/vit.py --init vit.safetensors          # weights of the same model of torch.nn
"""

import argparse

import numpy as np
import weft
from weft import nn, optim

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("--init", help="a safetensors file of weights")
arguments.add_argument("--steps", type=int, default=20)
arguments.add_argument("--ranks", type=int, default=2)
options = arguments.parse_args()
IMAGE, PATCH, CLASSES, DIM, LAYERS, HEADS, BATCH = 12, 3, 4, 16, 2, 4, 16


class Patches(nn.Module):
    """Conv2d(3, DIM, PATCH, stride=PATCH): a product of each patch. -> tokens [batch, n, DIM]"""

    def __init__(self):
        super().__init__()
        self.weight = self.declare("weight", (DIM, 3, PATCH, PATCH), nn.init.normal_)
        self.bias = self.declare("bias", (DIM,))

    def forward(self, images):
        n, side = images.shape[0], IMAGE // PATCH
        cut = images.reshape((n, 3, side, PATCH, side, PATCH)).permute((0, 2, 4, 1, 3, 5))
        weight = self.weight.reshape((DIM, 3 * PATCH * PATCH))
        return weft.linear(cut.reshape((n, side * side, 3 * PATCH * PATCH)), weight, self.bias)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention = nn.MultiheadAttention(DIM, HEADS, batch_first=True)
        self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y)[0]
        return x + self.down(weft.gelu(self.up(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = Patches()
        self.first = self.declare("first", (1, 1, DIM), nn.init.normal_)
        self.position = self.declare("position", (1, (IMAGE // PATCH) ** 2 + 1, DIM))
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES)

    def forward(self, images):
        x = self.conv(images)
        x = weft.cat([self.first.expand((x.shape[0], 1, DIM)), x], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def images_of(step):
    """Noise with a bright quarter, and the number of the quarter; equal on all ranks."""
    random = np.random.default_rng(step)
    labels = random.integers(0, 4, BATCH)
    images = random.normal(0, 0.2, (BATCH, 3, IMAGE, IMAGE)).astype(np.float32)
    half = IMAGE // 2
    for image, label in zip(images, labels):
        row, column = divmod(label, 2)
        image[:, row * half : (row + 1) * half, column * half : (column + 1) * half] += 2
    return images, labels


def main(world):
    mesh = weft.DeviceMesh(world, {"dp": world.size})
    model = Vit()
    for unit in [*model.blocks, model]:
        weft.fully_shard(unit, mesh)
    model.materialize()
    if options.init:
        weft.load(options.init, weft.state_dict(model))
    optimizer = optim.AdamW(model, lr=1e-2)
    for step in range(options.steps):
        rows = [weft.from_numpy(array) for array in images_of(step)]
        images, labels = (weft.distribute(r, mesh, [weft.Shard(0)]) for r in rows)
        loss = weft.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.full_tensor().item()
        if world.rank == 0:
            print(f"step {step + 1}  loss {value:.5f}")


if __name__ == "__main__":
    weft.run_world(options.ranks if weft.launched_ranks() == 1 else 1, main)
