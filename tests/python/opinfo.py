# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own samples (OpInfo, float32, CPU) run through `weft.torch`.

    python tests/python/opinfo.py [--only REGEX] [--samples 20] [--ranks 4] [--grad] [--write]

Prints the variants that are refused or wrong, and counts. --ranks distributes every tensor over a
mesh of so many ranks in a random layout; --grad compares gradients too; --write stores the names of
the variants that are right in all samples, which opinfo_test.py expects to stay so."""

import argparse
import collections
import pathlib
import random
import re
import sys
import warnings

import numpy as np

import weft
import weft.torch

RIGHT = pathlib.Path(__file__).parent / "opinfo_right.txt"
# Variants that other issues ask for, or that have no values to compare.
LEFT_OUT = re.compile(
    r"^(nn\.|linalg\.|_|ops\.|special\.|fft\.|signal\.|sparse|masked\.|torch\.)|pool|jiterator|"
    r"^(rand|empty|normal|bernoulli|multinomial|uniform|cauchy|exponential|geometric|log_normal|"
    r"dropout|new_empty|polar|complex|view_as_complex|view_as_real|stft|istft|cholesky|qr|svd|lu|"
    r"geqrf|ormqr|pinverse|triangular_solve|logdet|to_sparse)"
)


# Variants whose samples have another order of arguments than the function, or that are attributes.
ORDERED = {
    "einsum": lambda tensors, equation: weft.torch.einsum(equation, tensors),
    "where": lambda x, condition, other: weft.torch.where(condition, x, other),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
}


def function_of(name):
    if name in ORDERED:
        return ORDERED[name]
    function = getattr(weft.torch, name, None)
    is_dtype = isinstance(function, weft.DType)
    return getattr(weft.Tensor, name, None) if is_dtype or function is None else function


class Conversion:
    """Arguments of PyTorch as weft's; `leaves` are pairs of tensors with a gradient."""

    def __init__(self, torch, mesh=None, grad=False, seed=0):
        self.torch, self.mesh, self.grad = torch, mesh, grad
        self.draw, self.leaves = random.Random(seed), []
        self.dtypes = {
            getattr(torch, name): getattr(weft, name)
            for name in ("float32", "float64", "int32", "int64", "bool", "uint8", "float16")
        } | {torch.bfloat16: weft.bfloat16}

    def __call__(self, x):
        if isinstance(x, self.torch.Tensor):
            return self.tensor(x)
        if isinstance(x, (list, tuple)):
            return x if hasattr(x, "_fields") else type(x)(self(y) for y in x)
        if isinstance(x, dict):
            return {key: self(value) for key, value in x.items()}
        return self.dtypes.get(x, x) if isinstance(x, self.torch.dtype) else x

    def tensor(self, x):
        if x.ndim:
            made = weft.from_numpy(x.detach().contiguous().numpy().copy())
        else:
            made = weft.asarray(x.item(), dtype=self.dtypes[x.dtype])
        if self.mesh is not None:
            shards = [weft.Shard(d) for d in range(x.ndim)]
            placements = [self.draw.choice([weft.Replicate(), *shards]) for _ in self.mesh.shape]
            made = weft.distribute(made, self.mesh, placements)
        if self.grad and x.requires_grad:
            made.requires_grad_()
            self.leaves.append((x, made))
        return made


def flat(x):
    return [t for y in x for t in flat(y)] if isinstance(x, (list, tuple)) else [x]


def numbers(t):
    if isinstance(t, weft.Tensor):
        t = t.detach()
        t = t.full_tensor() if t.is_sharded else t
        return t.to(weft.float32).numpy() if t.dtype is weft.bfloat16 else t.numpy()
    if not hasattr(t, "detach"):
        return np.asarray(t)
    is_bf16 = str(t.dtype) == "torch.bfloat16"
    return (t.detach().float() if is_bf16 else t.detach()).numpy()


def same(expected, got):
    return expected.shape == got.shape and np.allclose(
        expected.astype("float64"), got.astype("float64"), rtol=2e-4, atol=2e-5, equal_nan=True
    )


def wrong_in(torch, op, function, sample, mesh, grad):
    """None when the sample is right, else what is wrong."""
    convert = Conversion(torch, mesh, grad)
    arguments = [convert(x) for x in (sample.input, *sample.args)]
    got = flat(function(*arguments, **convert(sample.kwargs)))
    expected = flat(op.op(sample.input, *sample.args, **sample.kwargs))
    if len(got) != len(expected):
        return f"{len(got)} results, expected {len(expected)}"
    for one, other in zip(expected, got):
        if not same(numbers(one), numbers(other)):
            return "another value"
    if not (grad and convert.leaves and op.supports_autograd):
        return None
    return wrong_gradient(torch, convert.leaves, expected, got)


def wrong_gradient(torch, leaves, expected, got):
    pairs = [(e, g) for e, g in zip(expected, got) if torch.is_tensor(e) and e.requires_grad]
    if not pairs:
        return None
    theirs = torch.autograd.grad(
        sum(e.sum() for e, _ in pairs), [x for x, _ in leaves], allow_unused=True
    )
    total = sum((g.sum() for _, g in pairs[1:]), pairs[0][1].sum())
    weft.backward([total], [weft.ones_like(total.detach())])
    for (_, leaf), gradient in zip(leaves, theirs):
        zero = np.zeros(leaf.shape)
        own = zero if leaf.grad is None else numbers(leaf.grad)
        if not same(zero if gradient is None else gradient.numpy(), own):
            return "another gradient"
    return None


def verdict_of(torch, op, taken, mesh=None, grad=False):
    """(verdict, detail) of one variant by samples: right, part, refused, wrong or absent."""
    function = function_of(op.name)
    if function is None:
        return "absent", ""
    found, first = collections.Counter(), ""
    for sample in taken:
        try:
            wrong = wrong_in(torch, op, function, sample, mesh, grad)
            found["wrong" if wrong else "right"] += 1
        except Exception as raised:
            wrong = f"{type(raised).__name__}: {raised}"
            found["refused"] += 1
        first = first or (wrong or "")
    if found["right"] == len(taken):
        return "right", ""
    if found["wrong"]:
        return "wrong", first
    return ("part" if found["right"] else "refused"), first


def verdicts(only=".", samples=20, ranks=0, grad=False):
    """{variant: (verdict, detail)} of those that are not left out."""
    warnings.filterwarnings("ignore")
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    ops = {}
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if torch.float32 in op.supported_dtypes("cpu") and not LEFT_OUT.search(name):
            ops[name] = op
    chosen = {name: op for name, op in ops.items() if re.search(only, name)}
    made = {}
    for name, op in chosen.items():
        taken = list(op.sample_inputs("cpu", torch.float32, requires_grad=grad))[:samples]
        if not ranks:
            made[name] = verdict_of(torch, op, taken, None, grad)
            continue

        def body(world, op=op, taken=taken):
            mesh = weft.DeviceMesh(world, {"x": ranks})
            return verdict_of(torch, op, taken, mesh, grad)

        try:
            made[name] = weft.run_ranks(ranks, body, deadline=20)[0]
        except Exception as raised:
            made[name] = ("refused", f"{type(raised).__name__}: {raised}")
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=".")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found = verdicts(given.only, given.samples, given.ranks, given.grad)
    for name, (verdict, detail) in sorted(found.items()):
        if verdict != "right":
            print(f"{verdict:8} {name:32} {detail.splitlines()[0][:120] if detail else ''}")
    print(dict(collections.Counter(verdict for verdict, _ in found.values())), len(found))
    if given.write:
        right = sorted(name for name, (verdict, _) in found.items() if verdict == "right")
        RIGHT.write_text("\n".join(right) + "\n")


if __name__ == "__main__":
    sys.exit(main())
