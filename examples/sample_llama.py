# SPDX-License-Identifier: Apache-2.0
"""Samples from a Hugging Face Llama whose weights are sharded over the ranks.
Each rank reads and holds only its part. Prompts and results are token ids.

python examples/sample_llama.py DIRECTORY --prompt 1,15,9 --tokens 20 --temperature 0.8
weft run -n 4 -- python examples/sample_llama.py DIRECTORY    # as processes; mpirun too
"""

import argparse
import time

import numpy as np
import weft
from weft import nn

arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
arguments.add_argument("directory", help="config.json and *.safetensors")
arguments.add_argument("--prompt", default="1", help="token ids, with commas between")
arguments.add_argument("--tokens", type=int, default=20)
arguments.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest")
arguments.add_argument("--ranks", type=int, default=2, help="threads, where it is no job")
arguments.add_argument("--seed", type=int, default=0)
options = arguments.parse_args()


def next_token(logits):
    """Returns the likeliest id of logits [vocabulary], or samples softmax(logits / temperature) by
    adding Gumbel noise and taking the maximum. All ranks draw the same id."""
    if options.temperature > 0:
        noise = -weft.log(-weft.log(weft.uniform(logits.shape, 1e-20, 1.0)))
        logits = logits / options.temperature + noise
    return int(weft.argmax(logits).item())


@weft.no_grad()
def main(world):
    mesh = weft.DeviceMesh(world, {"ranks": world.size})
    model = nn.TransformerModel(weft.transformer_config(options.directory))
    for unit in model.units():
        weft.fully_shard(unit, mesh)
    weft.fully_shard(model, mesh)
    weft.load_hugging_face(model, options.directory)
    tokens = [int(token) for token in options.prompt.split(",")]
    given = len(tokens)
    began = time.monotonic()
    for _ in range(options.tokens):
        ids = weft.distribute(weft.from_numpy(np.array([tokens])), mesh)
        tokens.append(next_token(model(ids)[0, -1].full_tensor()))
    seconds = time.monotonic() - began
    if world.rank == 0:
        print("tokens", *tokens[given:])
        print(f"{options.tokens / seconds:.1f} tokens/s on {world.size} ranks")


if __name__ == "__main__":
    if weft.launched_ranks() > 1:
        main(weft.connect(seed=options.seed))
    else:
        weft.run_ranks(options.ranks, main, seed=options.seed)
