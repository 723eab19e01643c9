# SPDX-License-Identifier: Apache-2.0
"""Forward and backward of a MoE block: transformers' loop over experts and its grouped form in
PyTorch, interleaved with weft's on ranks that are threads, in one process.

    PYTHONPATH=build/release/python python benchmarks/torch_moe.py [--threads 2] [--rounds 10]

PyTorch uses `threads` threads, weft as many ranks of one thread. Prints medians and the least of
wall time and of the process's CPU time, which other programs on the machine change less.
"""

import argparse
import json
import statistics
import threading
import time

import torch
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

try:
    import weft
except ImportError:
    weft = None

TOKENS, DIM, WIDTH, EXPERTS, TOP_K = 2048, 512, 1408, 8, 2


def balanced_tokens():
    x = torch.full((TOKENS, DIM), 0.5)
    for k in range(TOP_K):
        expert = (torch.arange(TOKENS) + k * (EXPERTS // TOP_K)) % EXPERTS
        x[torch.arange(TOKENS), expert] = 2 - 0.1 * k
    return x


def router_weight():
    weight = torch.zeros(EXPERTS, DIM)
    weight[torch.arange(EXPERTS), torch.arange(EXPERTS)] = 1
    return weight


class TorchBlock:
    def __init__(self, implementation):
        config = MixtralConfig(hidden_size=DIM, intermediate_size=WIDTH, num_local_experts=EXPERTS,
                               num_experts_per_tok=TOP_K, num_attention_heads=8,
                               experts_implementation=implementation)
        self.block = MixtralSparseMoeBlock(config).float()
        with torch.no_grad():
            for parameter in self.block.parameters():
                parameter.normal_(0, 0.02)
            self.block.gate.weight.copy_(router_weight())
        self.x = balanced_tokens()[None].requires_grad_()

    def __call__(self):
        self.block.zero_grad()
        self.x.grad = None
        self.block(self.x).sum().backward()

    def end(self):
        pass


class WeftBlock:
    """A block over ranks that compute a round at each barrier, and wait without spinning."""

    def __init__(self, ranks):
        self.barrier = threading.Barrier(ranks + 1)
        self.ended = False
        self.thread = threading.Thread(
            target=weft.run_ranks, args=(ranks, self.compute), kwargs={"threads_per_rank": 1})
        self.thread.start()
        self.barrier.wait()

    def compute(self, world):
        mesh = weft.DeviceMesh(world, {"ep": world.size})
        router = weft.nn.RouterOptions(top_k=TOP_K)
        block = weft.nn.MoE(
            weft.nn.MoEConfig(dim=DIM, width=WIDTH, experts=EXPERTS, router=router, std=0.02))
        weft.parallelize(block, mesh["ep"], {"experts": weft.ExpertParallel()})
        block.materialize()
        gate = dict(block.named_parameters())["gate.weight"]
        with weft.no_grad():
            weft.copy_(gate.detach(), weft.distribute(weft.asarray(router_weight().numpy()), mesh,
                                                      {}))
        tokens = weft.asarray(balanced_tokens().numpy())
        x = weft.distribute(tokens, mesh, {"ep": weft.Shard(0)})
        x.requires_grad = True
        self.barrier.wait()
        while True:
            self.barrier.wait()
            if self.ended:
                return
            for parameter in block.parameters():
                parameter.grad = None
            x.grad = None
            weft.sum(block(x)).backward()
            self.barrier.wait()

    def __call__(self):
        self.barrier.wait()
        self.barrier.wait()

    def end(self):
        self.ended = True
        self.barrier.wait()
        self.thread.join()


def measured(block):
    cpu, wall = time.process_time(), time.perf_counter()
    block()
    return time.perf_counter() - wall, time.process_time() - cpu


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    blocks = {}
    # batched_mm copies the weights of each row: 12 GB.
    for name in ("eager", "grouped_mm"):
        try:
            blocks[name] = TorchBlock(name)
            blocks[name]()
        except Exception as error:  # a form that this build of PyTorch lacks
            blocks.pop(name, None)
            print(json.dumps({"bench": "torch_moe", "case": name, "error": str(error)[:100]}))
    if weft:
        blocks["weft"] = WeftBlock(arguments.threads)
        blocks["weft"]()
    times = {name: [] for name in blocks}
    for _ in range(arguments.rounds):
        for name, block in blocks.items():
            times[name].append(measured(block))
    for name, block in blocks.items():
        block.end()
        wall, cpu = zip(*times[name])
        print(json.dumps({"bench": "torch_moe", "case": name, "unit": "ms",
                          "value": round(statistics.median(wall) * 1e3, 2),
                          "least": round(min(wall) * 1e3, 2),
                          "cpu": round(statistics.median(cpu) * 1e3, 2),
                          "least_cpu": round(min(cpu) * 1e3, 2)}))


if __name__ == "__main__":
    main()
