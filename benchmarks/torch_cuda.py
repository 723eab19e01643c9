#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training step of bench_cuda in plain PyTorch, for comparison with weft's.

    python benchmarks/torch_cuda.py --mode eager --mode compile
    python benchmarks/torch_cuda.py --device cpu --smoke

The same Llama (RMSNorm, rope, grouped-query attention by scaled_dot_product_attention, SwiGLU, a
head of its own), batch, optimizer (fused AdamW) and precision: computed with in bf16, weights kept
in f32. `masters` keeps copies in bf16, as weft does; `autocast` casts where they are used. One JSON
line a case, as bench_cuda prints.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

LLAMA = dict(dim=2048, layers=16, heads=32, kv_heads=8, ffn=8192, vocabulary=32000)
TINY = dict(dim=32, layers=2, heads=4, kv_heads=2, ffn=64, vocabulary=128)
BATCHES = 4


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


def rope(x, cosine, sine):
    """Rotates pairs (i, i + width / 2) of x [batch, heads, sequence, width]."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Attention(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.width = dim // heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, kv_heads * self.width, bias=False)
        self.v = nn.Linear(dim, kv_heads * self.width, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)
        self.shares = kv_heads < heads

    def forward(self, x, cosine, sine):
        batch, sequence, _ = x.shape
        q, k, v = (
            one(x).view(batch, sequence, -1, self.width).transpose(1, 2)
            for one in (self.q, self.k, self.v)
        )
        q, k = rope(q, cosine, sine), rope(k, cosine, sine)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.shares)
        return self.o(y.transpose(1, 2).reshape(batch, sequence, -1))


class Block(nn.Module):
    def __init__(self, dim, heads, kv_heads, ffn):
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(dim), RMSNorm(dim)
        self.attention = Attention(dim, heads, kv_heads)
        self.gate = nn.Linear(dim, ffn, bias=False)
        self.up = nn.Linear(dim, ffn, bias=False)
        self.down = nn.Linear(ffn, dim, bias=False)

    def forward(self, x, cosine, sine):
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, dim, layers, heads, kv_heads, ffn, vocabulary, sequence, dtype):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
        width = dim // heads
        rates = 10000 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = torch.outer(torch.arange(sequence, dtype=torch.float64), rates).repeat(1, 2)
        self.register_buffer("cosine", angles.cos().to(dtype), persistent=False)
        self.register_buffer("sine", angles.sin().to(dtype), persistent=False)

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def made_batches(args, sizes):
    """The same ids as in bench_cuda."""
    batches = []
    for number in range(BATCHES):
        numbers = [(12345 + number) % sizes["vocabulary"]]
        for i in range(args.batch * args.sequence):
            numbers.append((numbers[-1] * 1103 + 12289 + i % 7) % sizes["vocabulary"])
        shape = (args.batch, args.sequence)
        batches.append(
            tuple(torch.tensor(n).view(shape).to(args.device) for n in (numbers[:-1], numbers[1:]))
        )
    return batches


class Step:
    """Forward, backward and update of one model."""

    def __init__(self, args, sizes, compiled):
        torch.manual_seed(0)
        self.autocast = args.precision == "autocast"
        with torch.device(args.device):
            model = Llama(**sizes, sequence=args.sequence, dtype=torch.bfloat16)
        self.device = args.device
        self.used = list(model.parameters())
        self.weights = self.used
        if not self.autocast:
            self.weights = [parameter.detach().clone() for parameter in self.used]
            model.bfloat16()
        self.optimizer = torch.optim.AdamW(
            self.weights, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
        )
        self.loss_of = torch.compile(model) if compiled else model
        self.count = sum(parameter.numel() for parameter in self.used)

    def __call__(self, ids, targets):
        with torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.autocast):
            loss = self.loss_of(ids, targets)
        loss.backward()
        if not self.autocast:
            for weight, used in zip(self.weights, self.used):
                weight.grad = used.grad.float()
                used.grad = None
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if not self.autocast:
            with torch.no_grad():
                torch._foreach_copy_(self.used, self.weights)
        return loss.detach()


class Marks:
    """Times at points of the device's stream; the host's clock on the CPU."""

    def __init__(self, device):
        self.cuda = device.startswith("cuda")

    def mark(self):
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first, second):
        return first.elapsed_time(second) / 1e3 if self.cuda else second - first


def measured(args, sizes, compiled):
    """Seconds of each step (total, queueing, device), the losses, and the step itself."""
    step, batches = Step(args, sizes, compiled), made_batches(args, sizes)
    marks = Marks(args.device)
    times, losses = [], []
    for number in range(args.warmup + args.steps):
        if number == args.warmup and marks.cuda:
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        start = marks.mark()
        loss = step(*batches[number % BATCHES])
        end = marks.mark()
        queued = time.perf_counter() - began
        losses.append(loss.item())
        if marks.cuda:
            torch.cuda.synchronize()
        whole = time.perf_counter() - began
        times.append((whole, queued, marks.between(start, end)))
    return times[args.warmup :], losses, step


def operations_a_token(args, sizes, parameters):
    """Counts like weft: 6 per parameter except the embedding's, and attention without the mask."""
    multiplied = parameters - sizes["vocabulary"] * sizes["dim"]
    return 6 * multiplied + 12 * sizes["layers"] * sizes["dim"] * args.sequence


def report(args, sizes, mode):
    times, losses, step = measured(args, sizes, mode == "compile")
    whole, queued, device = (
        [round(1e3 * seconds, 3) for seconds in part] for part in zip(*times)
    )
    tokens = args.batch * args.sequence / statistics.median(whole) * 1e3
    rate = tokens * operations_a_token(args, sizes, step.count)
    line = {"bench": "torch_cuda", "case": f"train, {mode}, {args.precision}"}
    line |= {"value": round(tokens, 1), "unit": "tokens/s", "mfu": None}
    if args.peak_tflops:
        line["mfu"] = round(rate / (args.peak_tflops * 1e12), 4)
    line |= {"tflops": round(rate / 1e12, 3), "step_ms": statistics.median(whole)}
    line |= {"device_ms": statistics.median(device), "queued_ms": statistics.median(queued)}
    line["peak_bytes"] = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    line |= {"rows": args.batch, "sequence": args.sequence, "params": step.count}
    line |= {"first_loss": round(losses[0], 5), "last_loss": round(losses[-1], 5)}
    line |= {"steps": len(times), "torch": torch.__version__}
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mode", action="append", choices=["eager", "compile"])
    parser.add_argument("--precision", default="masters", choices=["masters", "autocast"])
    parser.add_argument("--batch", type=int, default=4, help="rows a step")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--peak-tflops", type=float, default=0, help="of the device, for MFU")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that all runs")
    args = parser.parse_args()
    args.sequence = 16 if args.smoke else 2048
    if args.smoke:
        args.batch, args.steps, args.warmup = 2, 2, 1
    for mode in args.mode or ["eager"]:
        report(args, TINY if args.smoke else LLAMA, mode)


if __name__ == "__main__":
    main()
