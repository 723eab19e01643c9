# SPDX-License-Identifier: Apache-2.0
"""PyTorch's forward and backward of the block that bench_moe measures: transformers' loop over
experts and its grouped form, in one process.

    python benchmarks/torch_moe.py [--threads 2] [--rounds 10]
"""

import argparse
import json
import statistics
import time

import torch
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

TOKENS, DIM, WIDTH, EXPERTS, TOP_K = 2048, 512, 1408, 8, 2


def block_of(implementation):
    config = MixtralConfig(hidden_size=DIM, intermediate_size=WIDTH, num_local_experts=EXPERTS,
                           num_experts_per_tok=TOP_K, num_attention_heads=8,
                           experts_implementation=implementation)
    block = MixtralSparseMoeBlock(config).float()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.normal_(0, 0.02)
        block.gate.weight.zero_()
        block.gate.weight[torch.arange(EXPERTS), torch.arange(EXPERTS)] = 1
    return block


def balanced_tokens():
    x = torch.full((1, TOKENS, DIM), 0.5)
    for k in range(TOP_K):
        expert = (torch.arange(TOKENS) + k * (EXPERTS // TOP_K)) % EXPERTS
        x[0, torch.arange(TOKENS), expert] = 2 - 0.1 * k
    return x.requires_grad_()


def seconds_of(block, x):
    block.zero_grad()
    x.grad = None
    start = time.perf_counter()
    block(x).sum().backward()
    return time.perf_counter() - start


parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--rounds", type=int, default=10)
arguments = parser.parse_args()
torch.set_num_threads(arguments.threads)
blocks = {}
for name in ("eager", "grouped_mm", "batched_mm"):
    try:
        blocks[name] = block_of(name)
        seconds_of(blocks[name], balanced_tokens())
    except Exception as error:  # a form that this build of PyTorch lacks
        blocks.pop(name, None)
        print(json.dumps({"bench": "torch_moe", "case": name, "error": str(error)[:100]}))
times = {name: [] for name in blocks}
x = balanced_tokens()
for _ in range(arguments.rounds):
    for name, block in blocks.items():
        times[name].append(seconds_of(block, x))
for name, all_times in times.items():
    print(json.dumps({"bench": "torch_moe", "case": name, "unit": "ms",
                      "value": round(statistics.median(all_times) * 1e3, 2)}))
