#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training step of bench_cuda in plain PyTorch, for comparison with weft's.

    python benchmarks/torch_cuda.py --mode eager --mode compile
    python benchmarks/torch_cuda.py --device cpu --smoke

The same Llama (RMSNorm, rope, grouped-query attention by scaled_dot_product_attention, SwiGLU, a
head of its own), batch, optimizer (fused AdamW) and precision: computed with in bf16, weights kept
in f32. `masters` keeps copies in bf16, as weft does; `autocast` casts where they are used. One JSON
line a case, as bench_cuda prints. `--mode kernels` times the cases of bench_cuda's part `rows`.
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


def seconds_of(f, repetitions=7, seconds=0.02):
    """Seconds of device time per call: the median over repetitions of some calls each."""
    f()
    torch.cuda.synchronize()
    marks, calls, times = Marks("cuda"), 1, []
    while len(times) < repetitions:
        start = marks.mark()
        for _ in range(calls):
            f()
        end = marks.mark()
        torch.cuda.synchronize()
        taken = marks.between(start, end)
        if taken < seconds:
            calls = max(calls + 1, int(calls * min(10, 1.2 * seconds / taken)))
        else:
            times.append(taken / calls)
    return statistics.median(times)


def report_kernels(args):
    """The cases of bench_cuda's part `rows`, by their names."""

    def case(name, f):
        line = {"bench": "torch_cuda", "case": name, "unit": "us"}
        print(json.dumps(line | {"value": round(1e6 * seconds_of(f), 2)}), flush=True)

    def random(*shape, dtype=torch.float32):
        return torch.randn(*shape, device="cuda").to(dtype)

    def both(name, f, leaves):
        with torch.no_grad():
            case(name, f)
        ones = torch.ones_like(f().detach())
        case(name + ", both", lambda: torch.autograd.grad(f(), leaves, ones))

    def needs_grad(*tensors):
        return [tensor.requires_grad_() for tensor in tensors]

    source = random(1 << 28)
    target = torch.zeros_like(source)
    case("copy of 1 GiB", lambda: target.copy_(source))
    del source, target
    for dtype, of in ((torch.float32, " f32"), (torch.bfloat16, " bf16")):
        x, y = needs_grad(random(16384, 8192, dtype=dtype), random(16384, 8192, dtype=dtype))
        with torch.no_grad():
            case("add" + of, lambda: x + y)
        both("gelu" + of, lambda: F.gelu(x), [x])
        both("swiglu" + of, lambda: F.silu(x) * y, [x, y])
        x, w = needs_grad(random(32768, 2048, dtype=dtype), random(2048, dtype=dtype))
        both("rms_norm" + of, lambda: F.rms_norm(x, w.shape, w, 1e-5), [x, w])
        both("softmax" + of, lambda: F.softmax(x, -1), [x])
    targets = torch.zeros(8192, dtype=torch.int64, device="cuda")
    for dtype, of in ((torch.float32, " f32"), (torch.bfloat16, " bf16")):
        (logits,) = needs_grad(random(8192, 32000, dtype=dtype))
        both("cross_entropy" + of, lambda: F.cross_entropy(logits, targets), [logits])
    weight = nn.Parameter(random(1 << 26))
    weight.grad = random(1 << 26)
    optimizer = torch.optim.AdamW([weight], lr=1e-3, weight_decay=0.1, fused=True)
    case("adamw f32", optimizer.step)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mode", action="append", choices=["eager", "compile", "kernels"])
    parser.add_argument("--precision", default="masters", choices=["masters", "autocast"])
    parser.add_argument("--batch", type=int, default=4, help="rows a step")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--peak-tflops", type=float, default=0, help="peak of the device, for MFU")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, to see that all runs")
    args = parser.parse_args()
    args.sequence = 16 if args.smoke else 2048
    if args.smoke:
        args.batch, args.steps, args.warmup = 2, 2, 1
    for mode in args.mode or ["eager"]:
        if mode == "kernels":
            report_kernels(args)
            continue
        report(args, TINY if args.smoke else LLAMA, mode)


if __name__ == "__main__":
    main()
