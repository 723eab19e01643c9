# SPDX-License-Identifier: Apache-2.0
"""Random programs of ops: PyTorch's results and gradients against those of sharded tensors.

    python tests/python/random_programs.py FIRST END

checks the programs of those seeds and prints the ones that differ. A program has up to three leaves
and twelve ops, on 1 to 6 ranks and a mesh of one or two axes; leaves, and a third of the results,
have random placements, Partial among them. A program may end early where weft refuses a change in
place that PyTorch takes."""

import random
import sys

import numpy as np
import torch
import weft
import weft.torch

MESHES = ((1,), (2,), (3,), (4,), (2, 2), (6,), (2, 3), (3, 2))
# Parts of the errors by which weft refuses a change in place.
REFUSED = (
    "requires a gradient, expected none of what changes",
    "expected one without a Partial",
    "recorded op changed it in place",
    "is a copy of elements",
)
MOST_ELEMENTS = 2000


def index(dim, what):
    return (slice(None),) * dim + (what,)


class Draw:
    """Draws one op: a name that describes it, and a function of (library, tensors)."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(seed)

    def one(self, pool, fits=lambda t: True):
        """The number of a tensor, or None."""
        numbers = [i for i, t in enumerate(pool) if fits(t)]
        return self.random.choice(numbers) if numbers else None

    def dim(self, tensor):
        return self.random.randrange(tensor.ndim)

    def op(self, pool):
        kinds = (self.of_one, self.of_two, self.with_number, self.reduction, self.product)
        kinds += (self.view, self.part, self.selection, self.loss, self.change_in_place)
        return self.random.choice(kinds)(pool)

    def of_one(self, pool):
        functions = {
            "tanh": lambda m, x: m.tanh(x),
            "sigmoid": lambda m, x: m.sigmoid(x),
            "sin": lambda m, x: m.sin(x),
            "exp": lambda m, x: m.exp(m.tanh(x)),
            "square": lambda m, x: m.square(x),
            "relu": lambda m, x: m.relu(x),
            "gelu": lambda m, x: m.nn.functional.gelu(x),
            "neg": lambda m, x: m.neg(x),
            "abs": lambda m, x: m.abs(x),
            "clamp": lambda m, x: m.clamp(x, -0.5, 0.7),
            "masked_fill": lambda m, x: x.masked_fill(x > 0.2, 0.25),
        }
        i = self.one(pool)
        name, function = self.random.choice(list(functions.items()))
        return f"{name}({i})", lambda m, p: function(m, p[i])

    def of_two(self, pool):
        def broadcast(a, b):
            try:
                return torch.broadcast_shapes(a.shape, b.shape).numel() <= MOST_ELEMENTS
            except RuntimeError:
                return False

        functions = {
            "add": lambda m, a, b: a + b,
            "sub": lambda m, a, b: a - b,
            "mul": lambda m, a, b: a * b,
            "div": lambda m, a, b: a / (1 + b * b),
            "maximum": lambda m, a, b: m.maximum(a, b),
            "minimum": lambda m, a, b: m.minimum(a, b),
            "where": lambda m, a, b: m.where(a > b, a, b * 2),
            "pow": lambda m, a, b: m.pow(m.abs(a) + 0.5, m.tanh(b)),
        }
        i = self.one(pool)
        j = self.one(pool, lambda t: broadcast(pool[i], t))
        name, function = self.random.choice(list(functions.items()))
        return f"{name}({i}, {j})", lambda m, p: function(m, p[i], p[j])

    def with_number(self, pool):
        functions = {
            "1.5 - x": lambda x: 1.5 - x,
            "x * -2": lambda x: x * -2,
            "1 / (2 + x * x)": lambda x: 1 / (2 + x * x),
            "x + 3": lambda x: x + 3,
        }
        i = self.one(pool)
        name, function = self.random.choice(list(functions.items()))
        return f"{name} of {i}", lambda m, p: function(p[i])

    def reduction(self, pool):
        i = self.one(pool, lambda t: t.ndim > 0)
        if i is None:
            return None
        count = self.random.randrange(1, pool[i].ndim + 1)
        dims = tuple(sorted(self.random.sample(range(pool[i].ndim), count)))
        keep = self.random.random() < 0.5
        functions = {
            "sum": lambda m, x: m.sum(x, dims, keepdim=keep),
            "mean": lambda m, x: m.mean(x, dims, keepdim=keep),
            "amax": lambda m, x: m.amax(x, dims, keepdim=keep),
            "amin": lambda m, x: m.amin(x, dims, keepdim=keep),
            "logsumexp": lambda m, x: m.logsumexp(x, dims, keepdim=keep),
            "norm": lambda m, x: m.sqrt(m.sum(x * x, dims, keepdim=keep) + 0.1),
            "prod": lambda m, x: m.prod(m.tanh(x), dims[0], keepdim=keep),
            "cumsum": lambda m, x: m.cumsum(x, dims[0]),
            "softmax": lambda m, x: m.softmax(x, dims[0]),
            "log_softmax": lambda m, x: m.log_softmax(x, dims[0]),
            "sort": lambda m, x: m.sort(x, dim=dims[0], stable=True)[0],
        }
        if np.prod([pool[i].shape[d] for d in dims]) > 2:
            functions["var"] = lambda m, x: m.var(x, dims, keepdim=keep)
        name, function = self.random.choice(list(functions.items()))
        return f"{name}({i}, {dims}, {keep})", lambda m, p: function(m, p[i])

    def product(self, pool):
        def fits(a, b):
            try:
                return torch.matmul(a, b).numel() <= MOST_ELEMENTS
            except RuntimeError:
                return False

        pairs = [
            (i, j)
            for i, a in enumerate(pool)
            for j, b in enumerate(pool)
            if a.ndim and b.ndim and fits(a.detach(), b.detach())
        ]
        if not pairs:
            return None
        i, j = self.random.choice(pairs)
        return f"matmul({i}, {j})", lambda m, p: m.matmul(p[i], p[j]) * 0.3

    def view(self, pool):
        i = self.one(pool, lambda t: 0 < t.ndim < 4)
        if i is None:
            return None
        t, pick = pool[i], self.random
        dim, other, place = self.dim(t), self.dim(t), pick.randrange(t.ndim + 1)
        last = max(dim, other)
        order = tuple(pick.sample(range(t.ndim), t.ndim))
        first = pick.choice([n for n in range(1, t.numel() + 1) if t.numel() % n == 0])
        spread = [pick.choice((2, 3)) if d == dim and n == 1 else n for d, n in enumerate(t.shape)]
        steps, lower = pick.randrange(-3, 4), min(dim, other)
        functions = {
            f"transpose {dim} {other}": lambda m, x: m.transpose(x, dim, other),
            f"permute {order}": lambda m, x: m.permute(x, order),
            f"unsqueeze {place}": lambda m, x: m.unsqueeze(x, place),
            f"squeeze {dim}": lambda m, x: m.squeeze(x, dim),
            f"flatten {lower} {last}": lambda m, x: m.flatten(x, lower, last),
            f"reshape {first}": lambda m, x: m.reshape(x, (first, t.numel() // first)),
            f"expand {spread}": lambda m, x: x.expand(*spread),
            f"flip {dim}": lambda m, x: m.flip(x, (dim,)),
            f"roll {steps} {dim}": lambda m, x: m.roll(x, steps, dim),
        }
        name, function = pick.choice(list(functions.items()))
        return f"{name} of {i}", lambda m, p: function(m, p[i])

    def part(self, pool):
        i = self.one(pool, lambda t: t.ndim > 0)
        if i is None:
            return None
        pick, dim = self.random, self.dim(pool[i])
        size = pool[i].shape[dim]
        first = pick.randrange(size)
        end = pick.randrange(first + 1, size + 1)
        functions = {
            "narrow": lambda m, x: m.narrow(x, dim, first, end - first),
            "select": lambda m, x: m.select(x, dim, first),
            "slice": lambda m, x: x[index(dim, slice(first, end))],
            "step": lambda m, x: x[index(dim, slice(first, None, 2))],
            "split": lambda m, x: m.split(x, end, dim)[-1],
            "topk": lambda m, x: m.topk(x, end, dim)[0],
        }
        name, function = pick.choice(list(functions.items()))
        return f"{name}({i}, {dim}, {first}:{end})", lambda m, p: function(m, p[i])

    def selection(self, pool):
        i = self.one(pool, lambda t: t.ndim > 0)
        if i is None:
            return None
        t, dim = pool[i], self.dim(pool[i])
        rows = self.numpy.integers(0, t.shape[dim], self.random.randrange(1, 5)).tolist()
        shape = [len(rows) if d == dim else n for d, n in enumerate(t.shape)]
        places = self.numpy.integers(0, t.shape[dim], shape).tolist()

        def like(other):
            pairs = enumerate(zip(other.shape, t.shape))
            return other.ndim == t.ndim and all(d == dim or a == b for d, (a, b) in pairs)

        j = self.one(pool, like)
        functions = {
            "index_select": lambda m, p: m.index_select(p[i], dim, m.tensor(rows)),
            "index": lambda m, p: p[i][index(dim, m.tensor(rows))],
            "gather": lambda m, p: m.gather(p[i], dim, m.tensor(places)),
            "argmax": lambda m, p: m.gather(p[i], dim, m.argmax(p[i], dim, keepdim=True)),
            "index_add": lambda m, p: m.index_add(
                p[i], dim, m.tensor(rows), m.index_select(p[i], dim, m.tensor(rows)) * 0.5
            ),
            f"cat {j}": lambda m, p: m.cat([p[i], p[j]], dim),
        }
        name, function = self.random.choice(list(functions.items()))
        return f"{name}({i}, {dim}, {rows})", function

    def loss(self, pool):
        i = self.one(pool, lambda t: t.ndim == 2 and t.shape[1] > 1)
        if i is None:
            return None
        rows, columns = pool[i].shape
        target = self.numpy.integers(0, columns, rows).tolist()
        functions = {
            "cross_entropy": lambda m, x: m.nn.functional.cross_entropy(x, m.tensor(target)),
            "layer_norm": lambda m, x: m.nn.functional.layer_norm(x, (columns,), eps=0.1),
            "tril": lambda m, x: m.tril(x),
        }
        name, function = self.random.choice(list(functions.items()))
        return f"{name}({i})", lambda m, p: function(m, p[i])

    def change_in_place(self, pool):
        i = self.one(pool, lambda t: t.ndim > 0)
        if i is None:
            return None
        dim, copies = self.dim(pool[i]), self.random.random() < 0.7
        at = self.random.randrange(pool[i].shape[dim])

        def scale(m, x, source):
            x.mul_(0.5)

        def add(m, x, source):
            x += source * 0.3

        def put_number(m, x, source):
            x[index(dim, at)] = 0.7

        def put_rows(m, x, source):
            x[index(dim, slice(at, at + 1))] = m.tanh(source[index(dim, slice(0, 1))])

        def put_at_indices(m, x, source):
            x[m.tensor([0, source.shape[0] - 1][: source.shape[0]])] = 0.3

        change = self.random.choice((scale, add, put_number, put_rows, put_at_indices))

        def run(m, p):
            x = p[i].clone() if copies else p[i] * 1.0
            change(m, x, p[i])
            return x

        return f"{change.__name__}({i}, {dim}, {at})", run

    def placements(self, tensor, axes):
        kinds = [weft.Replicate(), weft.Partial()]
        kinds += [weft.Shard(d) for d in range(tensor.ndim)] * 2
        return [self.random.choice(kinds) for _ in range(axes)]


class Program:
    """A program, its results and its gradients in PyTorch."""

    def __init__(self, seed):
        draw = Draw(seed)
        pick = draw.random
        self.mesh = pick.choice(MESHES)
        axes = len(self.mesh)
        shapes = [
            [pick.randrange(1, 7) for _ in range(pick.choice((1, 2, 2, 3)))]
            for _ in range(pick.randrange(1, 4))
        ]
        self.leaves = [draw.numpy.standard_normal(shape) for shape in shapes]
        self.results = [torch.tensor(leaf, requires_grad=True) for leaf in self.leaves]
        leaves = list(self.results)
        self.ops, self.names, self.placements = [], [], {}
        for number, leaf in enumerate(leaves):
            self.placements[number] = draw.placements(leaf, axes)
        count = pick.randrange(2, 12)
        while len(self.ops) < count:
            drawn = draw.op(self.results)
            if drawn is not None:
                self.try_op(*drawn)
                last = len(self.results) - 1
                if pick.random() < 0.3:
                    self.placements.setdefault(last, draw.placements(self.results[last], axes))
        self.weights = [draw.numpy.standard_normal(x.shape) for x in self.results]
        pairs = zip(self.results, self.weights)
        sum((x * torch.tensor(w)).sum() for x, w in pairs).backward()
        self.gradients = [leaf.grad.numpy() for leaf in leaves]

    def try_op(self, name, function):
        result = function(torch, self.results)
        is_small = result.ndim <= 4 and 0 < result.numel() <= MOST_ELEMENTS
        if is_small and torch.isfinite(result).all() and result.abs().max() < 1e6:
            self.results.append(result)
            self.ops.append(function)
            self.names.append(name)

    def __str__(self):
        shapes = [leaf.shape for leaf in self.leaves]
        return f"mesh {self.mesh}, leaves {shapes}, {self.placements}, {self.names}"


class Sharded:
    """weft.torch, whose constants are tensors over a mesh."""

    def __init__(self, mesh):
        self.mesh = mesh

    def __getattr__(self, name):
        return getattr(weft.torch, name)

    def tensor(self, values):
        return weft.distribute(weft.asarray(values), self.mesh, {})


def run_sharded(program, mesh):
    """The first difference from PyTorch, or None."""
    library = Sharded(mesh)

    def close(name, given, expected, tolerance):
        given = given.detach().full_tensor().numpy()
        if given.shape == expected.shape and np.allclose(given, expected, tolerance, tolerance):
            return None
        return f"{name} is {given.tolist()}, expected {expected.tolist()}"

    leaves = [library.tensor(leaf) for leaf in program.leaves]
    for leaf in leaves:
        leaf.requires_grad_()
    results = [leaf.redistribute(program.placements[i]) for i, leaf in enumerate(leaves)]
    for name, op in zip(program.names, program.ops):
        result = op(library, results)
        if len(results) in program.placements:
            result = result.redistribute(program.placements[len(results)])
        wrong = close(name, result, program.results[len(results)].detach().numpy(), 1e-7)
        if wrong:
            return wrong
        results.append(result)
    terms = [(x * library.tensor(w)).sum() for x, w in zip(results, program.weights)]
    sum(terms[1:], terms[0]).backward()
    pairs = zip(leaves, program.gradients)
    differences = (close(f"gradient {i}", x.grad, g, 1e-6) for i, (x, g) in enumerate(pairs))
    return next(filter(None, differences), None)


def difference(seed):
    """What differs between PyTorch and weft in the program of that seed, or None."""
    program = Program(seed)

    def body(world):
        return run_sharded(program, weft.DeviceMesh(world, dict(zip("ab", program.mesh))))

    try:
        found = weft.run_ranks(int(np.prod(program.mesh)), body)
    except ValueError as error:
        if any(text in str(error) for text in REFUSED):
            return None
        raise AssertionError(f"seed {seed}: {program}") from error
    wrong = next(filter(None, found), None)
    return wrong and f"seed {seed}: {wrong}; {program}"


if __name__ == "__main__":
    for each in range(int(sys.argv[1]), int(sys.argv[2])):
        if wrong := difference(each):
            print(wrong)
