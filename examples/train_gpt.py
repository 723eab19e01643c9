# SPDX-License-Identifier: Apache-2.0
"""Trains a model on the characters of a text with weft.Trainer, after nanoGPT; continues a run.

python examples/train_gpt.py --text book.txt --ranks 4 --steps 500 --save run
weft run -n 4 -- python examples/train_gpt.py            # as processes; mpirun and torchrun too
"""

import argparse

import numpy as np
import weft
from weft import nn, optim

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("--text", default=__file__)
arguments.add_argument("--init", help="a Hugging Face model to start from")
arguments.add_argument("--save", default="", help="a folder for checkpoints")
arguments.add_argument("--steps", type=int, default=20)
arguments.add_argument("--ranks", type=int, default=2)
options = arguments.parse_args()
SEQ, BATCH, RATE = 32, 8, 3e-3

text = open(options.text).read()
ids = {character: i for i, character in enumerate(sorted(set(text)))}
tokens = np.array([ids[character] for character in text])


def row(index):
    """Tokens of a row, and one more: the targets are the tokens that follow."""
    start = index * 7919 % (len(tokens) - SEQ)
    return tokens[start : start + SEQ + 1]


def main(world):
    mesh = weft.DeviceMesh(world, {"dp": world.size})
    model = nn.TransformerModel(nn.transformer_config(options.init or "tiny"))
    for unit in [*model.units(), model]:
        weft.fully_shard(unit, mesh)
    model.materialize()
    if options.init:
        weft.load_hugging_face(model, options.init)
    trainer = weft.Trainer(
        model,
        row,
        optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1),
        mesh,
        batch=BATCH,
        steps=options.steps,
        schedule=lambda step: RATE * min(1, (step + 1) / 5),
        save=options.save,
        resume=options.save,
        on_step=lambda s: world.rank == 0 and print(f"step {s.step}  loss {s.loss:.5f}"),
    )
    trainer.run()


if __name__ == "__main__":
    weft.run_world(options.ranks if weft.launched_ranks() == 1 else 1, main)
