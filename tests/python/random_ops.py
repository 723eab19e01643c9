# SPDX-License-Identifier: Apache-2.0
"""The steps that random_programs.py draws: functions of (library, operands), where the library has
PyTorch's names."""

import dataclasses
import random
import typing
import warnings

import numpy as np
import numpy_library
import weft

MOST_ELEMENTS = 2000


@dataclasses.dataclass
class Step:
    name: str
    operands: list
    function: typing.Callable


def index(dim, what):
    return (slice(None),) * dim + (what,)


def compose(functions):
    def run(m, x):
        for function in functions:
            x = function(m, x)
        return x

    return run


class Draw:
    """Draws steps over values, which are NumPy arrays."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(seed)

    def step(self, values):
        """A step that NumPy can run, and its value."""
        kinds = (self.of_one, self.of_two, self.with_number, self.reduction, self.product)
        kinds += (self.view, self.selection, self.loss, self.change, self.change, self.read_after)
        while True:
            drawn = self.random.choice(kinds)(values)
            if drawn is None:
                continue
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")  # NumPy's, for means of nothing
                    operands = [values[i] for i in drawn.operands]
                    value = np.array(drawn.function(numpy_library, *operands), order="C")
            except (ValueError, IndexError, ZeroDivisionError):
                continue
            small = value.ndim <= 4 and value.size <= MOST_ELEMENTS
            if small and np.isfinite(value).all() and (np.abs(value) < 1e6).all():
                return drawn, value

    def one(self, values, fits=lambda x: True):
        """The number of a value, or None."""
        numbers = [i for i, x in enumerate(values) if fits(x)]
        return self.random.choice(numbers) if numbers else None

    def dim(self, x):
        return self.random.randrange(x.ndim)

    def pick(self, functions):
        return self.random.choice(list(functions.items()))

    def of_one(self, values):
        name, function = self.pick(
            {
                "tanh": lambda m, x: m.tanh(x),
                "sigmoid": lambda m, x: m.sigmoid(x),
                "sin": lambda m, x: m.sin(x),
                "exp tanh": lambda m, x: m.exp(m.tanh(x)),
                "square": lambda m, x: m.square(x),
                "relu": lambda m, x: m.relu(x),
                "gelu": lambda m, x: m.nn.functional.gelu(x),
                "neg": lambda m, x: m.neg(x),
                "abs": lambda m, x: m.abs(x),
                "clamp": lambda m, x: m.clamp(x, -0.5, 0.7),
                "masked_fill": lambda m, x: m.masked_fill(x, x > 0.2, 0.25),
            }
        )
        return Step(name, [self.one(values)], function)

    def of_two(self, values):
        name, function = self.pick(
            {
                "add": lambda m, a, b: a + b,
                "sub": lambda m, a, b: a - b,
                "mul": lambda m, a, b: a * b,
                "div": lambda m, a, b: a / (1 + b * b),
                "maximum": lambda m, a, b: m.maximum(a, b),
                "minimum": lambda m, a, b: m.minimum(a, b),
                "where": lambda m, a, b: m.where(a > b, a, b * 2),
                "pow": lambda m, a, b: m.pow(m.abs(a) + 0.5, m.tanh(b)),
            }
        )
        i = self.one(values)
        return Step(name, [i, self.one(values)], function)

    def with_number(self, values):
        name, function = self.pick(
            {
                "1.5 - x": lambda m, x: 1.5 - x,
                "x * -2": lambda m, x: x * -2,
                "1 / (2 + x * x)": lambda m, x: 1 / (2 + x * x),
                "x + 3": lambda m, x: x + 3,
            }
        )
        return Step(name, [self.one(values)], function)

    def reduction(self, values):
        i = self.one(values, lambda x: x.ndim > 0)
        if i is None:
            return None
        ndim = values[i].ndim
        dims = tuple(sorted(self.random.sample(range(ndim), self.random.randrange(1, ndim + 1))))
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
        if np.prod([values[i].shape[d] for d in dims]) > 2:
            functions["var"] = lambda m, x: m.var(x, dims, keepdim=keep)
        name, function = self.pick(functions)
        return Step(f"{name} {dims} keepdim={keep}", [i], function)

    def product(self, values):
        i = self.one(values, lambda x: x.ndim > 0)
        j = self.one(values, lambda x: x.ndim > 0)
        if i is None:
            return None
        return Step("0.3 * matmul", [i, j], lambda m, a, b: m.matmul(a, b) * 0.3)

    def one_view(self, x):
        """A name and a function of (library, x) whose result shares memory, where strides allow."""
        pick = self.random
        dim, other, place = self.dim(x), self.dim(x), pick.randrange(x.ndim + 1)
        lower, upper = min(dim, other), max(dim, other)
        size, order = x.shape[dim], tuple(pick.sample(range(x.ndim), x.ndim))
        factors = [n for n in range(1, size + 1) if size % n == 0]
        first = pick.randrange(size + 1)
        end = pick.randrange(first, size + 1)
        functions = {
            f"transpose {dim} {other}": lambda m, x: m.transpose(x, dim, other),
            f"permute {order}": lambda m, x: m.permute(x, order),
            f"movedim {dim} {other}": lambda m, x: m.movedim(x, dim, other),
            f"unsqueeze {place}": lambda m, x: m.unsqueeze(x, place),
            f"squeeze {dim}": lambda m, x: m.squeeze(x, dim),
            f"flatten {lower} {upper}": lambda m, x: m.flatten(x, lower, upper),
            f"narrow {dim} {first}:{end}": lambda m, x: m.narrow(x, dim, first, end - first),
            f"[{first}:{end}] in {dim}": lambda m, x: x[index(dim, slice(first, end))],
            f"[{first}::2] in {dim}": lambda m, x: x[index(dim, slice(first, None, 2))],
        }
        if size:
            at, parts = pick.randrange(size), pick.choice(factors)
            window = pick.randrange(1, size + 1)
            step = pick.randrange(window, size + 1)
            functions |= {
                f"select {dim} {at}": lambda m, x: m.select(x, dim, at),
                f"[{at}] in {dim}": lambda m, x: x[(*index(dim, at), ...)],
                f"split {window} {dim}": lambda m, x: m.split(x, window, dim)[-1],
                f"chunk {window} {dim}": lambda m, x: m.chunk(x, window, dim)[0],
                f"unfold {dim} {window} {step}": lambda m, x: m.unfold(x, dim, window, step),
                f"unflatten {dim} {parts}": lambda m, x: m.unflatten(
                    x, dim, (parts, size // parts)
                ),
            }
        if dim != other:
            offset = pick.randrange(-1, 2)
            if x.shape[lower] > 1 and x.shape[upper] > 1:
                functions[f"diagonal {offset} {lower} {upper}"] = lambda m, x: m.diagonal(
                    x, offset, lower, upper
                )
        return self.pick(functions)

    def views(self, x, most):
        """A chain of up to `most` views: names, function, and the shape of the result."""
        names, functions = [], []
        for _ in range(self.random.randrange(most + 1)):
            if not 0 < x.ndim < 4:
                break
            name, function = self.one_view(x)
            x = np.array(function(numpy_library, x), order="C")
            names.append(name)
            functions.append(function)
        return names, compose(functions), x.shape

    def view(self, values):
        i = self.one(values, lambda x: 0 < x.ndim < 4)
        if i is None:
            return None
        x, pick = values[i], self.random
        dim, steps = self.dim(x), pick.randrange(-3, 4)
        first = pick.choice([n for n in range(1, x.size + 1) if x.size % n == 0] or [1])
        spread = [pick.choice((2, 3)) if d == dim and n == 1 else n for d, n in enumerate(x.shape)]
        name, function = self.one_view(x)
        pair = x.shape[dim : dim + 2]
        flat = [*x.shape[:dim], int(np.prod(pair)), *x.shape[dim + 2 :]]
        outer = self.outer(x.shape[dim])
        split = [*x.shape[:dim], outer, x.shape[dim] // outer, *x.shape[dim + 1 :]]
        return Step(
            *self.random.choice(
                (
                    (name, [i], function),
                    (name, [i], function),
                    (name, [i], function),
                    (f"reshape {first}", [i], lambda m, x: m.reshape(x, (first, -1))),
                    (f"reshape {flat}", [i], lambda m, x: m.reshape(x, flat)),
                    (f"reshape {split}", [i], lambda m, x: m.reshape(x, split)),
                    (f"expand {spread}", [i], lambda m, x: m.broadcast_to(x, spread)),
                    (f"flip {dim}", [i], lambda m, x: m.flip(x, (dim,))),
                    (f"roll {steps} {dim}", [i], lambda m, x: m.roll(x, steps, dim)),
                )
            )
        )

    def selection(self, values):
        i = self.one(values, lambda x: x.ndim > 0 and x.size)
        if i is None:
            return None
        x, dim = values[i], self.dim(values[i])
        rows = self.numpy.integers(0, x.shape[dim], self.random.randrange(1, 5))
        shape = [len(rows) if d == dim else n for d, n in enumerate(x.shape)]
        places = self.numpy.integers(0, x.shape[dim], shape)
        # Places of which none repeats along the dim.
        unique = np.argsort(self.numpy.random(x.shape), dim)
        best = self.random.randrange(1, x.shape[dim] + 1)

        def like(other):
            pairs = enumerate(zip(other.shape, x.shape))
            return other.ndim == x.ndim and all(d == dim or a == b for d, (a, b) in pairs)

        functions = {
            "index_select": lambda m, x: m.index_select(x, dim, m.tensor(rows)),
            "index": lambda m, x: x[index(dim, m.tensor(rows))],
            "gather": lambda m, x: m.gather(x, dim, m.tensor(places)),
            "gather argmax": lambda m, x: m.gather(x, dim, m.argmax(x, dim, keepdim=True)),
            "topk": lambda m, x: m.topk(x, best, dim=dim)[0],
            "masked_select": lambda m, x: m.masked_select(x, x > 0.1),
            "index_add": lambda m, x: m.index_add(
                x, dim, m.tensor(rows), m.index_select(x, dim, m.tensor(rows)) * 0.5
            ),
            "scatter": lambda m, x: m.scatter(x, dim, m.tensor(unique), m.tanh(x)),
            "scatter_add": lambda m, x: m.scatter_add(
                x, dim, m.tensor(places), m.gather(x, dim, m.tensor(places)) * 0.5
            ),
        }
        if self.random.random() < 0.3:
            j = self.one(values, like)
            return Step(f"cat {dim}", [i, j], lambda m, x, y: m.cat([x, y], dim))
        name, function = self.pick(functions)
        return Step(f"{name} {dim} {rows.tolist()}", [i], function)

    def loss(self, values):
        i = self.one(values, lambda x: x.ndim == 2 and x.shape[0] and x.shape[1] > 1)
        if i is None:
            return None
        rows, columns = values[i].shape
        target = self.numpy.integers(0, columns, rows)
        name, function = self.pick(
            {
                "cross_entropy": lambda m, x: m.nn.functional.cross_entropy(x, m.tensor(target)),
                "layer_norm": lambda m, x: m.nn.functional.layer_norm(x, (columns,), eps=0.1),
                "tril": lambda m, x: m.tril(x),
                "triu": lambda m, x: m.triu(x),
            }
        )
        return Step(f"{name} {target.tolist()}", [i], function)

    def write(self, shape):
        """A name and a function of (library, view of that shape, source) that changes the view."""
        pick = self.random
        functions = {
            "mul_": lambda m, x, s: m.mul_(x, 0.5),
            "add_": lambda m, x, s: m.add_(x, 0.25),
            "fill_": lambda m, x, s: m.fill_(x, 0.7),
            "clamp_": lambda m, x, s: m.clamp_(x, -0.4, 0.6),
            "masked_fill_": lambda m, x, s: m.masked_fill_(x, x > 0.2, 0.25),
            "copy_": lambda m, x, s: m.copy_(x, s),
            "add_ source": lambda m, x, s: m.add_(x, s * 0.3),
            "[...] =": lambda m, x, s: x.__setitem__(..., s * 0.5),
            "[mask] =": lambda m, x, s: x.__setitem__(x > 0.1, 0.3),
        }
        if shape:
            dim = pick.randrange(len(shape))
            size = shape[dim]
            first = pick.randrange(size + 1)
            end, step = pick.randrange(first, size + 1), pick.choice((1, 1, 2))
            part = index(dim, slice(first, end, step))
            rows = self.numpy.integers(0, max(size, 1), pick.randrange(1, 4))

            def scale_part(m, x, s):
                x[part] *= 3

            functions |= {
                f"[{first}:{end}:{step}] in {dim} =": lambda m, x, s: x.__setitem__(part, 0.9),
                f"[{first}:{end}:{step}] in {dim} = s": lambda m, x, s: x.__setitem__(part, s),
                f"[{first}:{end}:{step}] in {dim} *=": scale_part,
            }
            if size:
                functions |= {
                    f"[{rows[0]}] in {dim} =": lambda m, x, s: x.__setitem__(
                        index(dim, int(rows[0])), 1.5
                    ),
                    f"[{rows.tolist()}] in {dim} =": lambda m, x, s: x.__setitem__(
                        index(dim, m.tensor(rows)), 0.1
                    ),
                    f"index_fill_ {dim} {rows.tolist()}": lambda m, x, s: m.index_fill_(
                        x, dim, m.tensor(rows), 0.2
                    ),
                }
        return self.pick(functions)

    def change(self, values):
        """Changes a copy in place, through a chain of views."""
        i = self.one(values)
        names, views, shape = self.views(values[i], 3)
        name, write = self.write(shape)

        def broadcasts(x):
            return x.ndim <= len(shape) and all(
                a in (1, b) for a, b in zip(x.shape[::-1], shape[::-1])
            )

        j = self.one(values, broadcasts)
        if j is None:
            return None

        # weft refuses most recorded changes through views, and those of Partial tensors.
        recorded, reduces = self.random.random() < 0.1, self.random.random() < 0.95

        def run(m, x, source):
            base = m.reduced(x) if reduces else x
            base = m.clone(base if recorded else m.detach(base))
            write(m, views(m, base), source if recorded else m.detach(source))
            return base

        first = "clone" if recorded else "detached clone"
        return Step(" . ".join([first, *names, name]), [i, j], run)

    def read_after(self, values):
        """Changes a copy in place and reads it by a view that was made before."""
        i = self.one(values, lambda x: x.ndim > 0)
        if i is None:
            return None
        seen, view, _ = self.views(values[i], 2)
        name, write = self.write(values[i].shape)

        def run(m, x):
            base = m.clone(m.detach(m.reduced(x)))
            result = view(m, base)
            write(m, base, m.tanh(base))
            return m.clone(result)

        return Step(" . ".join([*seen, "after", name]), [i], run)

    def placements(self, x, axes):
        kinds = [weft.Replicate(), weft.Partial()]
        kinds += [weft.Shard(d) for d in range(x.ndim)] * 2
        chosen = [self.random.choice(kinds) for _ in range(axes)]
        inner = self.random.randrange(axes)
        dim = getattr(chosen[inner], "dim", None)
        if dim is None or self.random.random() < 0.5:
            return chosen
        # Other axes may cut the same inner factor, but not another one.
        cut = weft.Shard(dim, outer=self.outer(x.shape[dim]))
        return [cut if p == weft.Shard(dim) else p for p in chosen]

    def outer(self, size):
        return self.random.choice([n for n in range(1, size + 1) if size % n == 0] or [1])
