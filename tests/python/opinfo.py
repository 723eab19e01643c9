# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own samples (OpInfo, float32, CPU) run through `weft.torch`.

    python tests/python/opinfo.py [--only REGEX] [--samples 20] [--mesh 2,2] [--layouts 3] [--grad]
                                  [--gradgrad] [--dtype complex128] [--all] [--write]

Prints the variants that are refused or wrong, and counts. --mesh distributes every tensor over a
mesh of ranks that are threads, in --layouts random layouts in turn; --grad compares gradients,
--gradgrad those of the gradients too, in float64;
--all runs both without a mesh, on 4 ranks and on 2x2. --write stores the names of the variants that
are right in all samples, which opinfo_test.py expects to stay so. Variants that are not expected
are in opinfo_left_out.txt, with the reasons."""

import argparse
import collections
import fnmatch
import math
import pathlib
import random
import re
import sys
import warnings

import numpy as np

import weft
import weft.nn
import weft.torch

RIGHT = pathlib.Path(__file__).parent / "opinfo_right.txt"
LEFT_OUT = pathlib.Path(__file__).parent / "opinfo_left_out.txt"
DRAWN = 40000

# Variants whose samples have another order of arguments than the function, or that are attributes.
ORDERED = {
    "einsum": lambda tensors, equation: weft.torch.einsum(equation, tensors),
    "where": lambda x, condition, other: weft.torch.where(condition, x, other),
    "polygamma": lambda x, n: weft.torch.polygamma(n, x),
    "T": lambda x: x.T,
    "H": lambda x: x.H,
    "mT": lambda x: x.mT,
    "mH": lambda x: x.mH,
}
# Methods that draw the elements of a tensor anew.
for _name in ("cauchy", "exponential", "geometric", "log_normal", "uniform"):
    ORDERED[_name] = lambda x, *given, _of=f"{_name}_", **named: getattr(x.clone(), _of)(
        *given, **named
    )
ORDERED["normal.in_place"] = lambda x, *given, **named: x.clone().normal_(*given, **named)

# Results without values to compare: their dtype and shape are, and mean and standard deviation of
# many draws.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"}
UNINITIALISED |= {"new_empty_strided"}
MOMENTS = {
    "bernoulli": (lambda x: weft.torch.bernoulli(x + 0.3), 0.3, math.sqrt(0.21)),
    "cauchy": (lambda x: weft.torch.atan(x.cauchy_()), 0, math.pi / math.sqrt(12)),
    "exponential": (lambda x: x.exponential_(2.0), 0.5, 0.5),
    "geometric": (lambda x: x.geometric_(0.25), 4, math.sqrt(0.75) / 0.25),
    "log_normal": (lambda x: x.log_normal_(0.0, 0.5), math.exp(0.125), 0.603901),
    "multinomial": (lambda x: weft.torch.multinomial(x[:4] + 1, DRAWN, True), 1.5, 1.118),
    "normal": (lambda x: weft.torch.normal(x + 2, x + 3), 2, 3),
    "normal.in_place": (lambda x: x.normal_(2, 3), 2, 3),
    "normal.number_mean": (lambda x: weft.torch.normal(2.0, x + 3), 2, 3),
    "rand_like": (weft.torch.rand_like, 0.5, 1 / math.sqrt(12)),
    "randint": (lambda x: weft.torch.randint(0, 4, (DRAWN,)), 1.5, 1.118),
    "randint_like": (lambda x: weft.torch.randint_like(x, 4), 1.5, 1.118),
    "randn": (lambda x: weft.torch.randn(DRAWN), 0, 1),
    "randn_like": (weft.torch.randn_like, 0, 1),
    "uniform": (lambda x: x.uniform_(1, 3), 2, 1 / math.sqrt(3)),
}


def left_out():
    """{pattern of names: reason}."""
    lines = [line.split(None, 1) for line in LEFT_OUT.read_text().splitlines()]
    return {line[0]: line[1] for line in lines if line and not line[0].startswith("#")}


# Factors whose columns, or rows, have signs that are free: magnitudes are compared.
SIGNED = {"linalg.eig", "linalg.eigh", "linalg.qr", "linalg.svd", "qr", "svd"}


def function_of(name, variant):
    if name in SIGNED:
        return lambda *given, **named: magnitudes(plain_function(name, variant)(*given, **named))
    return plain_function(name, variant)


def magnitudes(results):
    if len(results) == 3:  # without the columns that span what is orthogonal to the others
        u, s, v = results
        k = s.shape[-1]
        results = (u[..., :k], s, v[..., :k, :] if v.shape[-2] != k else v[..., :k])
    return [abs(x) for x in results]


def plain_function(name, variant):
    if name.startswith("linalg."):
        return getattr(weft.torch.linalg, name[7:], None)
    if name.startswith("nn.functional."):
        return getattr(weft.nn.functional, name[14:], None)
    if name.startswith("fft."):
        return getattr(weft.fft, name[4:], None)
    for own in (variant, name):
        if own in ORDERED:
            return ORDERED[own]
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
            for name in (
                *("float32", "float64", "float16", "bool", "complex64", "complex128"),
                *("int8", "int16", "int32", "int64", "uint8"),
            )
        } | {torch.bfloat16: weft.bfloat16}

    def __call__(self, x):
        if isinstance(x, self.torch.Tensor):
            return self.tensor(x)
        if isinstance(x, (list, tuple)):
            return x if hasattr(x, "_fields") else type(x)(self(y) for y in x)
        if isinstance(x, dict):
            return {key: self(value) for key, value in x.items()}
        if isinstance(x, self.torch.device):
            return str(x)
        return self.dtypes.get(x, x) if isinstance(x, self.torch.dtype) else x

    def tensor(self, x):
        if x.ndim:
            made = weft.from_numpy(numbers(x.contiguous()).copy())
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
    return (t.detach().float() if is_bf16 else t.detach()).resolve_conj().resolve_neg().numpy()


def same(expected, got):
    if expected.shape != got.shape:
        return False
    wide = "complex128" if "c" in expected.dtype.kind + got.dtype.kind else "float64"
    expected, got = expected.astype(wide), got.astype(wide)
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=0)
    return np.allclose(expected, got, rtol=2e-4, atol=2e-5 + 1e-6 * largest, equal_nan=True)


class Reference:
    """A sample with PyTorch's results and gradients, computed once: `gradients` by the id of the
    operand, None where the sample has none."""

    def __init__(self, torch, op, sample, grad):
        self.given = (sample.input, *sample.args)
        self.named = sample.kwargs
        results = op.op(*self.given, **self.named)
        self.results = flat(magnitudes(results) if op.name in SIGNED else results)
        self.has_values = op.name not in UNINITIALISED and variant_of(op) not in MOMENTS
        self.gradients = self.second = None
        self.twice = grad == "second" and op.supports_gradgrad
        if grad and op.supports_autograd and self.has_values:
            self.find_gradients(torch)

    def find_gradients(self, torch):
        operands = [x for x in flat([*self.given, *self.named.values()]) if torch.is_tensor(x)]
        operands = [x for x in operands if x.requires_grad]
        self.weights = [weights_for(getattr(r, "shape", ()), i) for i, r in enumerate(self.results)]
        self.leads = [torch.is_tensor(r) and r.requires_grad for r in self.results]
        if not operands or not any(self.leads):
            return
        chosen = [(r, w) for r, w, lead in zip(self.results, self.weights, self.leads) if lead]
        found = torch.autograd.grad(
            [r for r, _ in chosen],
            operands,
            [torch.as_tensor(w).to(r.dtype) for r, w in chosen],
            allow_unused=True,
            create_graph=self.twice,
        )

        def by_operand(found):
            return {
                id(x): np.zeros(tuple(x.shape)) if g is None or g._is_zerotensor() else numbers(g)
                for x, g in zip(operands, found)
            }

        self.gradients = by_operand(found)
        roots = [(x, g) for x, g in zip(operands, found) if g is not None and g.requires_grad]
        if not self.twice or not roots:
            return
        weights = [torch.as_tensor(weights_for(x.shape, 7)).to(g.dtype) for x, g in roots]
        second = torch.autograd.grad([g for _, g in roots], operands, weights, allow_unused=True)
        self.second = by_operand(second)


def weights_for(shape, number):
    """Coefficients of a result's elements, of which no two are equal."""
    return np.cos(np.arange(math.prod(shape), dtype="float32") + number).reshape(tuple(shape))


def wrong_in(torch, function, reference, convert):
    """None when the sample is right, else what is wrong."""
    arguments = [convert(x) for x in reference.given]
    got = flat(function(*arguments, **convert(reference.named)))
    if len(reference.results) != len(got):
        return f"{len(got)} results, expected {len(reference.results)}"
    for one, other in zip(reference.results, got):
        if torch.is_tensor(one) and convert.dtypes.get(one.dtype) is not other.dtype:
            return f"dtype {other.dtype}, expected {one.dtype}"
        if tuple(getattr(one, "shape", ())) != tuple(getattr(other, "shape", ())):
            return f"shape {other.shape}, expected {one.shape}"
        if reference.has_values and not same(numbers(one), numbers(other)):
            return "another value"
    return None if reference.gradients is None else wrong_gradient(reference, convert, got)


def wrong_gradient(reference, convert, got):
    all_of = zip(got, reference.weights, reference.leads)
    own = [(g, w) for g, w, lead in all_of if lead and g.numel() and g.requires_grad]
    own = [(g, like(weft.asarray(w) if w.ndim else weft.asarray(float(w)), g)) for g, w in own]
    if reference.twice:
        return wrong_second_gradient(reference, convert, own)
    if own:
        weft.backward([g for g, _ in own], [w for _, w in own])
    for x, leaf in convert.leaves:
        found = np.zeros(tuple(leaf.shape)) if leaf.grad is None else numbers(leaf.grad)
        if not same(reference.gradients[id(x)], found):
            return "another gradient"
    return None


def wrong_second_gradient(reference, convert, own):
    leaves = [leaf for _, leaf in convert.leaves]
    roots, weights = [g for g, _ in own], [w for _, w in own]
    first = [None] * len(leaves)
    if own:
        first = weft.grad(roots, leaves, weights, create_graph=True, allow_unused=True)
    chosen = [(x, g) for (x, _), g in zip(convert.leaves, first) if g is not None]
    chosen = [(x, g) for x, g in chosen if g.requires_grad and g.numel()]
    second = [None] * len(leaves)
    if chosen:
        weights = [weights_for(tuple(x.shape), 7) for x, _ in chosen]
        weights = [weft.asarray(w) if w.ndim else weft.asarray(float(w)) for w in weights]
        weights = [like(w, g) for w, (_, g) in zip(weights, chosen)]
        second = weft.grad([g for _, g in chosen], leaves, weights, allow_unused=True)
    for what, found, expected in (
        ("gradient", first, reference.gradients),
        ("second gradient", second, reference.second or {}),
    ):
        for (x, leaf), g in zip(convert.leaves, found):
            zero = np.zeros(tuple(leaf.shape))
            if not same(expected.get(id(x), zero), zero if g is None else numbers(g)):
                return f"another {what}"
    return None


def like(whole, other):
    whole = whole.to(other.dtype)
    return weft.distribute(whole, other.device_mesh) if other.is_sharded else whole


def wrong_moments(name, mesh):
    function, mean, deviation = MOMENTS[name]
    start = weft.zeros((DRAWN,))
    start = start if mesh is None else weft.distribute(start, mesh, [weft.Shard(0)])
    drawn = numbers(function(start))
    bound = 6 * deviation / math.sqrt(DRAWN)
    if abs(drawn.mean() - mean) < bound and abs(drawn.std() - deviation) < 4 * bound:
        return None
    return f"mean {drawn.mean()} and deviation {drawn.std()}, expected {mean} and {deviation}"


def verdict_of(torch, op, references, mesh=None, grad=False, layouts=1):
    """(verdict, detail) of one variant by samples: right, part, refused, wrong or absent."""
    function, name = function_of(op.name, variant_of(op)), variant_of(op)
    if function is None:
        return "absent", ""
    found, first = collections.Counter(), ""
    for number, reference in enumerate(references * layouts):
        convert = Conversion(torch, mesh, grad, f"{name} {number}")
        try:
            wrong = wrong_in(torch, function, reference, convert)
            found["wrong" if wrong else "right"] += 1
        except Exception as raised:
            wrong = f"{type(raised).__name__}: {raised}"
            found["refused"] += 1
        first = first or (wrong or "")
    if name in MOMENTS and not first:
        first = wrong_moments(name, mesh) or ""
        found["wrong"] += bool(first)
    if found["wrong"]:
        return "wrong", first
    if not found["refused"]:
        return "right", ""
    return ("part" if found["right"] else "refused"), first


def variant_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def all_variants():
    """{name: OpInfo} of the variants that have samples in float32."""
    warnings.filterwarnings("ignore")
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    return {variant_of(op): op for op in op_db if torch.float32 in op.supported_dtypes("cpu")}


def reason_for(name, reasons):
    return next((reasons[p] for p in reasons if fnmatch.fnmatchcase(name, p)), None)


def verdicts(only=".", samples=20, mesh=(), grad=False, layouts=1, dtype="float32"):
    """{variant: (verdict, detail)} of those that are not left out."""
    ops, reasons = all_variants(), left_out()
    import torch

    made = {}
    for name, op in ops.items():
        if not re.search(only, name) or reason_for(name, reasons):
            continue
        is_wide = grad == "second" and dtype == "float32"
        drawn_as = torch.float64 if is_wide else getattr(torch, dtype)
        if drawn_as not in op.dtypes or (grad == "second" and not op.supports_gradgrad):
            continue
        drawn = list(op.sample_inputs("cpu", drawn_as, requires_grad=bool(grad)))[:samples]
        taken = [Reference(torch, op, sample, grad) for sample in drawn]
        if not mesh:
            made[name] = verdict_of(torch, op, taken, None, grad)
            continue

        def body(world, op=op, taken=taken):
            axes = {f"x{i}": size for i, size in enumerate(mesh)}
            return verdict_of(torch, op, taken, weft.DeviceMesh(world, axes), grad, layouts)

        try:
            ranks = weft.run_ranks(math.prod(mesh), body, deadline=60)
            made[name] = next((one for one in ranks if one[0] != "right"), ranks[0])
        except Exception as raised:
            made[name] = ("refused", f"{type(raised).__name__}: {raised}")
    return made


def report(found):
    for name, (verdict, detail) in sorted(found.items()):
        if verdict != "right":
            print(f"{verdict:8} {name:32} {detail.splitlines()[0][:120] if detail else ''}")
    print(dict(collections.Counter(verdict for verdict, _ in found.values())), len(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=".")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--mesh", default="")
    parser.add_argument("--layouts", type=int, default=3)
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--gradgrad", action="store_true")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    mesh = tuple(int(size) for size in given.mesh.split(",") if size)
    for sizes in ((), (4,), (2, 2)) if given.all else (mesh,):
        grad = "second" if given.gradgrad else given.grad or given.all
        layouts = given.layouts if sizes else 1
        found = verdicts(given.only, given.samples, sizes, grad, layouts, given.dtype)
        print(f"mesh {sizes}, gradients {grad}:")
        report(found)
    if given.write:
        right = sorted(name for name, (verdict, _) in found.items() if verdict == "right")
        RIGHT.write_text("\n".join(right) + "\n")


if __name__ == "__main__":
    sys.exit(main())
