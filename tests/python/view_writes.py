# SPDX-License-Identifier: Apache-2.0
"""Random writes through chains of views: NumPy's arrays against sharded tensors.

    python tests/python/view_writes.py FIRST END

checks the cases of those seeds and prints the ones that differ. A case has a tensor of 0 to 4
dims, with sizes 0 and 1 among them, laid out over a mesh of one to three axes on 1 to 8 ranks; up
to three views of it, each of the one before; and up to three writes. All ranks must hold NumPy's
elements after each write, in the tensor and in all of its views, or all raise, with nothing
changed."""

import random
import sys
import threading

import numpy as np
import weft
from weft import Replicate, Shard

MESHES = ((1,), (2,), (3,), (4,), (5,), (8,), (2, 2), (2, 3), (3, 2), (1, 3), (2, 4), (2, 2, 2))
MESHES += ((1, 2, 3),)
# The documented refusal: of a change of elements that a view repeats.
REPEATED = "repeats elements (expand)"
# The mesh of the calling rank.
HERE = threading.local()
# Cases from this seed on begin with a view that may show an element more than once.
REPEATING = 1_000_000
SIZES = (0, 1, 1, 2, 3, 3, 4, 5, 7, 8)


class Case:
    def __init__(self, seed, mesh):
        self.random = random.Random(seed)
        r = self.random
        self.shape = tuple(r.choice(SIZES) for _ in range(r.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))))
        while np.prod(self.shape) > 500:
            self.shape = self.shape[:-1]
        self.dtype = r.choice(("float32", "float32", "int64"))
        self.placements = self.layout(len(self.shape), mesh)
        self.views = [self.view() for _ in range(r.choice((0, 1, 1, 2, 2, 3)))]
        self.writes = [self.write() for _ in range(r.choice((1, 1, 2, 3)))]
        self.mesh = mesh
        if seed >= REPEATING:
            self.repeat()

    def layout(self, ndim, mesh):
        r = self.random
        dims = range(ndim)
        return [Shard(r.choice(dims)) if ndim and r.random() < 0.65 else Replicate() for _ in mesh]

    def view(self):
        """A function of (NumPy array, tensor) and numbers drawn now, so that all ranks agree."""
        return self.random.choice(VIEWS), self.random.randrange(1 << 30)

    def repeat(self):
        """Makes the first view one that may show an element more than once."""
        repeats = self.random.choice((unfolded, expanded))
        self.views.insert(0, (repeats, self.random.randrange(1 << 30)))

    def write(self):
        return self.random.choice(WRITES), self.random.randrange(1 << 30)


def drawn_key(r, shape, negative=True):
    """A basic index for that shape."""
    key = []
    first = r.randint(0, len(shape))
    last = r.randint(first, len(shape)) if r.random() < 0.2 else len(shape)
    for number, size in enumerate(shape[:first] + shape[last:]):
        if number == first and last < len(shape):
            key.append(Ellipsis)
        kind = r.random()
        if kind < 0.3 and size:
            key.append(r.randrange(-size, size))
        elif kind < 0.85:
            ends = (None, *range(-size - 1, size + 2))
            step = r.choice((None, None, 1, 2, 3) + ((-1, -2) if negative else ()))
            key.append(slice(r.choice(ends), r.choice(ends), step))
        else:
            key.append(slice(None))
    if r.random() < 0.2:
        key.insert(r.randint(0, len(key)), None)
    if r.random() < 0.2 and Ellipsis not in key:
        key.append(Ellipsis)
    return tuple(key)


def with_ellipsis(key):
    """NumPy returns a copy for an index of numbers only."""
    return key if any(k is Ellipsis for k in key) else (*key, Ellipsis)


def sliced(r, a, x):
    key = drawn_key(r, a.shape)
    return f"[{key}]", a[with_ellipsis(key)], x[key if len(key) != 1 else key[0]]


def selected(r, a, x):
    if not a.ndim:
        return None
    dim = r.randrange(a.ndim)
    if not a.shape[dim]:
        return None
    i = r.randrange(a.shape[dim])
    return f"select({dim}, {i})", a[(slice(None),) * dim + (i, Ellipsis)], weft.select(x, dim, i)


def narrowed(r, a, x):
    if not a.ndim:
        return None
    dim = r.randrange(a.ndim)
    start = r.randint(0, a.shape[dim])
    size = r.randint(0, a.shape[dim] - start)
    part = a[(slice(None),) * dim + (slice(start, start + size), Ellipsis)]
    return f"narrow({dim}, {start}, {size})", part, weft.narrow(x, dim, start, size)


def permuted(r, a, x):
    dims = r.sample(range(a.ndim), a.ndim)
    return f"permute{dims}", a.transpose(dims), x.permute(*dims) if dims else x


def transposed(r, a, x):
    if a.ndim < 2:
        return None
    return "mT", np.swapaxes(a, -1, -2), x.mT


def moved(r, a, x):
    if not a.ndim:
        return None
    i, j = r.randrange(a.ndim), r.randrange(a.ndim)
    return f"moveaxis({i}, {j})", np.moveaxis(a, i, j), weft.moveaxis(x, i, j)


def reshaped(r, a, x):
    if not a.size:
        return None
    rest, sizes = a.size, []
    while rest > 1 and len(sizes) < 3:
        sizes.append(r.choice([d for d in range(1, rest + 1) if rest % d == 0]))
        rest //= sizes[-1]
    sizes.insert(r.randint(0, len(sizes)), rest)
    return f"reshape{sizes}", a.reshape(sizes), weft.reshape(x, tuple(sizes))


def flattened(r, a, x):
    return "flatten", a.reshape(-1), weft.flatten(x)


def squeezed(r, a, x):
    dims = [d for d, size in enumerate(a.shape) if size == 1]
    if not dims:
        return None
    dim = r.choice(dims)
    return f"squeeze({dim})", np.squeeze(a, dim), weft.squeeze(x, dim)


def unsqueezed(r, a, x):
    dim = r.randint(0, a.ndim)
    return f"unsqueeze({dim})", np.expand_dims(a, dim), weft.unsqueeze(x, dim)


def expanded(r, a, x):
    shape = tuple(r.choice((1, 2, 3)) if size == 1 else size for size in a.shape)
    if r.random() < 0.3:
        shape = (r.choice((1, 2)), *shape)
    added = len(shape) - a.ndim
    kept = zip(shape[added:], a.shape, a.strides)
    strides = (0,) * added + tuple(stride if n == size else 0 for n, size, stride in kept)
    view = np.lib.stride_tricks.as_strided(a, shape, strides)
    return f"expand{shape}", view, weft.broadcast_to(x, shape)


def diagonal(r, a, x):
    if a.ndim < 2:
        return None
    i, j = r.sample(range(a.ndim), 2)
    rows, columns = a.shape[i], a.shape[j]
    offset = r.randint(-rows - 1, columns + 1)
    view = np.diagonal(a, offset, i, j)
    view.flags.writeable = True
    return f"diagonal({offset}, {i}, {j})", view, weft.diagonal(x, offset, i, j)


def unfolded(r, a, x):
    if not a.ndim:
        return None
    dim = r.randrange(a.ndim)
    if not a.shape[dim]:
        return None
    size, step = r.randint(1, a.shape[dim]), r.randint(1, 4)
    windows = np.lib.stride_tricks.sliding_window_view(a, size, dim, writeable=True)
    windows = windows[(slice(None),) * dim + (slice(None, None, step), Ellipsis)]
    return f"unfold({dim}, {size}, {step})", windows, weft.unfold(x, dim, size, step)


def split(r, a, x):
    if not a.ndim:
        return None
    dim, size = r.randrange(a.ndim), r.choice((1, 2, 3))
    if not a.shape[dim]:
        return None
    count = -(-a.shape[dim] // size)
    i = r.randrange(count)
    part = a[(slice(None),) * dim + (slice(i * size, (i + 1) * size), Ellipsis)]
    return f"split({size}, {dim})[{i}]", part, weft.split(x, size, dim)[i]


def unbound(r, a, x):
    if not a.ndim or not a.shape[0]:
        return None
    i = r.randrange(a.shape[0])
    return f"unbind()[{i}]", a[i, ...], weft.unbind(x)[i]


def detached(r, a, x):
    return "detach", a, x.detach()


def picked(r, a, x):
    """A copy, which leaves the array alone."""
    if not a.ndim or not a.shape[0]:
        return None
    rows = [r.randrange(a.shape[0]) for _ in range(r.randint(1, 3))]
    return f"[{rows}]", np.ascontiguousarray(a[rows]), x[rows]


VIEWS = (sliced,) * 6 + (selected, narrowed, permuted, transposed, moved, reshaped, reshaped)
VIEWS += (flattened, squeezed, unsqueezed, expanded, diagonal, diagonal, unfolded, split, unbound)
VIEWS += (detached, picked)


def values(r, shape, like):
    """An array that broadcasts to the shape, and the tensor: a number, replicated or sharded."""
    shape = tuple(1 if r.random() < 0.15 else size for size in shape[r.choice((0, 0, 0, 1)) :])
    a = np.array([r.randint(-9, 9) for _ in range(int(np.prod(shape)))], like.dtype).reshape(shape)
    return a


def tensor_of(r, a, x):
    placements = [
        Shard(r.randrange(a.ndim)) if a.ndim and r.random() < 0.5 else Replicate()
        for _ in range(HERE.mesh.ndim)
    ]
    return weft.distribute(weft.asarray(a), HERE.mesh, placements)


def fill(r, a, x):
    number = r.randint(-9, 9)

    def numpy():
        a[...] = number

    return f"fill_({number})", a, numpy, lambda: x.fill_(number)


def add_number(r, a, x):
    number = r.randint(-9, 9)

    def numpy():
        a[...] += number

    return f"add_({number})", a, numpy, lambda: x.add_(number)


def multiply(r, a, x):
    b = values(r, a.shape, a)
    given = tensor_of(r, b, x)

    def numpy():
        a[...] *= b

    return "mul_(b)", a, numpy, lambda: x.mul_(given)


def copied(r, a, x):
    b = values(r, a.shape, a)
    given = tensor_of(r, b, x)

    def numpy():
        a[...] = b

    return "copy_(b)", a, numpy, lambda: x.copy_(given)


def set_number(r, a, x):
    key, number = drawn_key(r, a.shape), r.randint(-9, 9)

    def numpy():
        a[with_ellipsis(key)] = number

    def weft_():
        x[key] = number

    return f"[{key}] = {number}", a[with_ellipsis(key)], numpy, weft_


def set_values(r, a, x):
    key = drawn_key(r, a.shape)
    part = a[with_ellipsis(key)]
    b = values(r, part.shape, a)
    given = tensor_of(r, b, x)

    def numpy():
        a[with_ellipsis(key)] = b

    def weft_():
        x[key] = given

    return f"[{key}] = b", part, numpy, weft_


def augment(r, a, x):
    key = drawn_key(r, a.shape)
    part = a[with_ellipsis(key)]
    b = values(r, part.shape, a)
    given = tensor_of(r, b, x)

    def numpy():
        a[with_ellipsis(key)] += b

    def weft_():
        x[key] += given

    return f"[{key}] += b", part, numpy, weft_


def set_masked(r, a, x):
    mask = np.array([r.random() < 0.4 for _ in range(a.size)], bool).reshape(a.shape)
    given = tensor_of(r, mask, x)
    if r.random() < 0.5:
        b = r.randint(-9, 9)
        value = b
    else:
        b = np.array([r.randint(-9, 9) for _ in range(int(mask.sum()))], a.dtype)
        value = tensor_of(r, b, x)

    def numpy():
        a[mask] = b

    def weft_():
        x[given] = value

    return f"[mask] = {b}", a, numpy, weft_


def set_rows(r, a, x):
    if not a.ndim or not a.shape[0]:
        return None
    rows = r.sample(range(a.shape[0]), r.randint(1, a.shape[0]))
    b = values(r, (len(rows), *a.shape[1:]), a)
    given = tensor_of(r, b, x)
    by = tensor_of(r, np.array(rows), x) if r.random() < 0.5 else rows

    def numpy():
        a[rows] = b

    def weft_():
        x[by] = given

    return f"[{rows}] = b", a, numpy, weft_


WRITES = (fill, add_number, multiply, copied, set_number, set_values, augment, augment)
WRITES += (set_masked, set_rows)


def is_repeated(a):
    """Returns whether two elements of the view are one element of the array."""
    if a.size == 0:
        return False
    offsets = np.zeros(a.shape, np.int64)
    for d, stride in enumerate(a.strides):
        offsets += (np.arange(a.shape[d]) * stride).reshape((-1,) + (1,) * (a.ndim - d - 1))
    return len(np.unique(offsets)) < a.size


def differs(words, a, x, case, check_parts):
    full = x.full_tensor().numpy()
    if full.shape != a.shape or not np.array_equal(full, a):
        return f"{words}: {full.tolist()}, expected {a.tolist()}"
    if check_parts:
        part = weft.distribute(weft.asarray(a.copy()), HERE.mesh, case.placements).local().numpy()
        if not np.array_equal(x.local().numpy(), part):
            return f"{words}: the part is {x.local().numpy().tolist()}, expected {part.tolist()}"
    return None


def run_case(case, mesh):
    """Returns what a rank sees: the outcomes of the writes, and what differs from NumPy."""
    HERE.mesh = mesh
    root = np.array([(7 * i + 3) % 23 for i in range(int(np.prod(case.shape)))], case.dtype)
    root = root.reshape(case.shape)
    a = root
    x = weft.distribute(weft.asarray(root.copy()), mesh, case.placements)
    words = f"{case.shape} {case.dtype} mesh {case.mesh} {case.placements}"
    kept = [(words, a, x)]
    for view, number in case.views:
        try:
            made = view(random.Random(number), a, x)
        except Exception as error:  # noqa: BLE001
            return [str(error)], f"{words}.{view.__name__}: {error}"
        if made is None:
            continue
        text, a, x = made
        words += "." + text
        if len(a.shape) > 6 or a.size > 3000:
            break
        kept.append((words, a, x))
    outcomes = []
    for write, number in case.writes:
        r = random.Random(number)
        _, a, x = r.choice(kept) if r.random() < 0.3 else kept[-1]
        made = write(r, a, x)
        if made is None:
            continue
        text, target, numpy, weft_ = made
        words += "; " + text
        try:
            weft_()
            outcomes.append("ok")
        except Exception as error:  # noqa: BLE001
            outcomes.append(f"{type(error).__name__}: {error}")
        repeats = is_repeated(target)
        is_refused = outcomes[-1] != "ok"
        # A part of repeated elements that had to move is refused too.
        may_be = repeats or any(is_repeated(b) for _, b, _ in kept)
        is_known = may_be and REPEATED in outcomes[-1]
        if not is_known and (is_refused or repeats):
            expected = "a refusal" if repeats else "ok"
            return outcomes, f"{words}: {outcomes[-1]}, expected {expected}"
        if not is_refused:
            numpy()
        for at, (text, b, y) in enumerate(kept):
            wrong = differs(f"{words}\n    seen in {text}", b, y, case, at == 0)
            if wrong:
                return outcomes, wrong
    return outcomes, None


def run_seeds(seeds):
    """The failures of these cases: {seed: words}."""
    failures = {}
    for number, shape in enumerate(MESHES):
        own = [seed for seed in seeds if seed % len(MESHES) == number]
        if not own:
            continue
        cases = [Case(seed, shape) for seed in own]
        names = ("dp", "tp", "cp")

        def body(world):
            mesh = weft.DeviceMesh(world, dict(zip(names, shape)))
            found = []
            for case in cases:
                found.append(run_case(case, mesh))
            return found

        ranks = weft.run_ranks(int(np.prod(shape)), body)
        for seed, seen in zip(own, zip(*ranks)):
            wrong = next((words for _, words in seen if words), None)
            if wrong is None and any(outcomes != seen[0][0] for outcomes, _ in seen):
                wrong = f"ranks disagree: {[outcomes for outcomes, _ in seen]}"
            if wrong:
                failures[seed] = wrong
    return failures


if __name__ == "__main__":
    first, end = map(int, sys.argv[1:3])
    count = 0
    for start in range(first, end, 650):
        for seed, words in run_seeds(range(start, min(start + 650, end))).items():
            print(f"seed {seed}: {words}\n", flush=True)
            count += 1
    print(f"{count} of {end - first} cases differ")
    sys.exit(count > 0)
