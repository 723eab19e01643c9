#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of GPT-2 124M as llm.c's train_gpt2.c runs them, compared with PyTorch.

    PYTHONPATH=build/release/python python benchmarks/gpt2.py

A step is 4 rows of 64 tokens, f32: forward, cross entropy, backward, AdamW. Each round measures
weft, PyTorch and torch.compile in processes of their own, one after the other; a line of JSON for
each gives the median ms of a step, and the last line the ratio to the faster one of PyTorch, the
median of the rounds. Needs torch and transformers.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

ROWS, TOKENS = 4, 64
CONFIG = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 50257,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
RATE = 1e-4


def batches(count):
    """Ids and targets of `count` steps; the same for all."""
    random = np.random.default_rng(0)
    for _ in range(count):
        text = random.integers(0, CONFIG["vocab_size"], (ROWS, TOKENS + 1))
        yield text[:, :-1].copy(), text[:, 1:].copy()


def timed(step, steps, warmup):
    """Seconds of each step after `warmup`, and its losses."""
    took, losses = [], []
    for ids, targets in batches(warmup + steps):
        began = time.perf_counter()
        loss = step(ids, targets)
        took.append(time.perf_counter() - began)
        losses.append(loss)
    return took[warmup:], losses


def weft_steps(options, folder):
    import weft
    from weft import nn, optim

    weft.set_num_threads(options.threads)

    def main(world):
        mesh = weft.DeviceMesh(world, {"dp": 1})
        model = nn.TransformerModel(nn.transformer_config(folder))
        for unit in [*model.units(), model]:
            weft.fully_shard(unit, mesh)
        model.materialize()
        optimizer = optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)

        def step(ids, targets):
            ids, targets = (
                weft.distribute(weft.from_numpy(x), mesh, [weft.Shard(0)]) for x in (ids, targets)
            )
            loss = model.loss(ids, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.full_tensor().item()

        return timed(step, options.steps, options.warmup)

    return weft.run_ranks(1, main, threads_per_rank=options.threads)[0]


def torch_steps(options, folder, compiled):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(options.threads)
    model = GPT2LMHeadModel(GPT2Config.from_pretrained(folder))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True)

    def forward(ids, targets):
        logits = model(ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    if compiled:
        forward = torch.compile(forward)

    def step(ids, targets):
        loss = forward(torch.from_numpy(ids), torch.from_numpy(targets))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return timed(step, options.steps, options.warmup)


def measure(who, options):
    """Runs one of the three here and prints its line."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(CONFIG, file)
        if who == "weft":
            took, losses = weft_steps(options, folder)
        else:
            took, losses = torch_steps(options, folder, who == "torch.compile")
    line = {"bench": "gpt2", "case": f"124M/{who}"}
    line |= {"value": round(statistics.median(took) * 1e3, 1), "unit": "ms"}
    line |= {"threads": options.threads, "losses": [losses[0], losses[-1]]}
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--who", choices=["weft", "torch", "torch.compile"], help="measure one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a round")
    parser.add_argument("--warmup", type=int, default=3, help="steps before, not timed")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.who:
        return measure(options.who, options)
    ratios = []
    for _ in range(options.rounds):
        values = {}
        for who in ("weft", "torch", "torch.compile"):
            command = [sys.executable, __file__, "--who", who, "--threads", str(options.threads)]
            command += ["--steps", str(options.steps), "--warmup", str(options.warmup)]
            out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            print(out, end="", flush=True)
            values[who] = json.loads(out.splitlines()[-1])["value"]
        ratios.append(min(values["torch"], values["torch.compile"]) / values["weft"])
    line = {"bench": "gpt2", "case": "124M/ratio to the faster one of PyTorch"}
    line |= {"value": round(statistics.median(ratios), 3), "unit": "ratio", "rounds": len(ratios)}
    print(json.dumps(line | {"min": round(min(ratios), 3), "max": round(max(ratios), 3)}))


if __name__ == "__main__":
    main()
