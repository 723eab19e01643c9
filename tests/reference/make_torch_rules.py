#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/python/torch_rules.json: what PyTorch computes where its rules are easily missed.

    python tests/reference/make_torch_rules.py      # needs PyTorch

promotion: {"dtype ndim, dtype ndim": dtype of the result}; can_cast: {"from, to": bool}; rows: for
each row of three of 1, inf, -inf and NaN the values and gradients of functions of a row; losses:
cross_entropy by options, with the gradient of the logits."""

import itertools
import json
import pathlib

import torch

OUT = pathlib.Path(__file__).parent.parent / "python" / "torch_rules.json"
DTYPES = "bool uint8 int8 int16 int32 int64 bfloat16 float16 float32 float64".split()
NUMBERS = {"True": True, "2": 2, "2.5": 2.5}
F = torch.nn.functional


def operands():
    for name, ndim in itertools.product(DTYPES, (0, 1)):
        yield f"{name} {ndim}", torch.ones((2,) * ndim, dtype=getattr(torch, name))
    yield from NUMBERS.items()


def short(dtype):
    return str(dtype).removeprefix("torch.")


def promotion():
    return {
        f"{a}, {b}": short(torch.result_type(x, y))
        for (a, x), (b, y) in itertools.product(operands(), repeat=2)
    }


def can_cast():
    return {
        f"{a}, {b}": torch.can_cast(getattr(torch, a), getattr(torch, b))
        for a, b in itertools.product(DTYPES, repeat=2)
    }


def with_gradient(function, x):
    x = x.clone().requires_grad_()
    y = function(x)
    (y * torch.arange(1.0, y.numel() + 1).reshape(y.shape)).sum().backward()
    return [y.tolist(), x.grad.tolist()]


def rows():
    inf = float("inf")
    x = torch.tensor(list(itertools.product((1.0, inf, -inf, float("nan")), repeat=3)))
    targets = torch.arange(len(x)) % 3
    functions = {
        "softmax": lambda x: torch.softmax(x, 1),
        "log_softmax": lambda x: torch.log_softmax(x, 1),
        "logsumexp": lambda x: torch.logsumexp(x, 1),
        "cross_entropy": lambda x: F.cross_entropy(x, targets, reduction="none"),
    }
    return {"x": x.tolist()} | {n: with_gradient(f, x) for n, f in functions.items()}


def losses():
    torch.manual_seed(0)
    x, weight = torch.randn(6, 5), torch.tensor([1.0, 0.5, 0.0, 2.0, 1.5])
    made = {"x": x.tolist(), "weight": weight.tolist(), "cases": []}
    targets = ([0, 4, 2, -100, 1, 3], [-100] * 6, [2] * 6)
    options = itertools.product(targets, ("mean", "sum", "none"), (0.0, 0.2, 1.0), (False, True))
    for of_rows, reduction, smoothing, weighted in options:
        named = {"reduction": reduction, "label_smoothing": smoothing}
        loss = lambda x: F.cross_entropy(
            x, torch.tensor(of_rows), weight if weighted else None, **named
        )
        made["cases"].append([of_rows, named, weighted, *with_gradient(loss, x)])
    return made


def main():
    made = {f.__name__: f() for f in (promotion, can_cast, rows, losses)}
    OUT.write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
