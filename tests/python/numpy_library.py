# SPDX-License-Identifier: Apache-2.0
"""PyTorch's names over NumPy arrays, without gradients: the reference of random_programs.py that is
always installed. Views share memory as NumPy's do."""

import numpy as np
from numpy.lib.stride_tricks import as_strided


def _axes(dims):
    return dims if isinstance(dims, int) else tuple(dims)


class Functional:
    """torch.nn.functional."""

    @staticmethod
    def gelu(x):
        return 0.5 * x * (1 + erf(x / np.sqrt(2)))

    @staticmethod
    def cross_entropy(x, target):
        return -np.mean(log_softmax(x, 1)[np.arange(len(target)), target])

    @staticmethod
    def layer_norm(x, shape, eps):
        dims = tuple(range(x.ndim - len(shape), x.ndim))
        centred = x - x.mean(dims, keepdims=True)
        return centred / np.sqrt(np.mean(centred**2, dims, keepdims=True) + eps)


class nn:
    functional = Functional


def erf(x):
    import math

    return np.vectorize(math.erf, otypes=[np.float64])(x)


def tensor(values):
    return np.array(values)


def clone(x):
    return np.array(x, order="C")


def reduced(x):
    return x


# Functions of NumPy with another name or other arguments.
neg, detach = np.negative, np.asarray
tanh, sin, exp, square, abs, maximum, minimum = (
    np.tanh,
    np.sin,
    np.exp,
    np.square,
    np.abs,
    np.maximum,
    np.minimum,
)
where, sqrt, matmul, pow, tril, triu, flip = (
    np.where,
    np.sqrt,
    np.matmul,
    np.power,
    np.tril,
    np.triu,
    np.flip,
)
unsqueeze, roll, movedim, broadcast_to, clamp = (
    np.expand_dims,
    np.roll,
    np.moveaxis,
    np.broadcast_to,
    np.clip,
)
permute = np.transpose


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


def masked_fill(x, mask, value):
    return np.where(mask, value, x)


def sum(x, dims=None, keepdim=False):
    return np.sum(x, _axes(dims), keepdims=keepdim)


def mean(x, dims, keepdim=False):
    return np.mean(x, _axes(dims), keepdims=keepdim)


def amax(x, dims, keepdim=False):
    return np.max(x, _axes(dims), keepdims=keepdim)


def amin(x, dims, keepdim=False):
    return np.min(x, _axes(dims), keepdims=keepdim)


def var(x, dims, keepdim=False):
    return np.var(x, _axes(dims), ddof=1, keepdims=keepdim)


def prod(x, dim, keepdim=False):
    return np.prod(x, dim, keepdims=keepdim)


def logsumexp(x, dims, keepdim=False):
    highest = np.max(x, _axes(dims), keepdims=True)
    total = np.log(np.sum(np.exp(x - highest), _axes(dims), keepdims=True)) + highest
    return total if keepdim else np.squeeze(total, _axes(dims))


def log_softmax(x, dim):
    return x - logsumexp(x, dim, keepdim=True)


def softmax(x, dim):
    return np.exp(log_softmax(x, dim))


def cumsum(x, dim):
    return np.cumsum(x, dim)


def sort(x, dim, stable):
    return np.sort(x, dim, kind="stable"), argsort(x, dim, stable)


def argsort(x, dim, stable):
    return np.argsort(x, dim, kind="stable")


def argmax(x, dim, keepdim):
    return np.argmax(x, dim, keepdims=keepdim)


def topk(x, k, dim):
    order = np.flip(np.argsort(x, dim, kind="stable"), dim)
    best = np.take(order, range(k), dim)
    return np.take_along_axis(x, best, dim), best


def transpose(x, dim0, dim1):
    return np.swapaxes(x, dim0, dim1)


def squeeze(x, dim):
    return np.squeeze(x, dim) if x.shape[dim] == 1 else x[...]


def reshape(x, shape):
    return np.reshape(x, shape)


def flatten(x, first, last):
    merged = int(np.prod(x.shape[first : last + 1]))
    return np.reshape(x, (*x.shape[:first], merged, *x.shape[last + 1 :]))


def unflatten(x, dim, sizes):
    return np.reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


def narrow(x, dim, start, length):
    return x[(slice(None),) * dim + (slice(start, start + length),)]


def select(x, dim, at):
    # An Ellipsis keeps a 0-d result a view.
    return x[(slice(None),) * dim + (at, ...)]


def split(x, size, dim):
    return [narrow(x, dim, at, min(size, x.shape[dim] - at)) for at in range(0, x.shape[dim], size)]


def chunk(x, count, dim):
    return split(x, max(-(-x.shape[dim] // count), 1), dim)


def diagonal(x, offset, dim0, dim1):
    first = x[(slice(None),) * dim1 + (slice(offset, None),)] if offset > 0 else x
    first = x[(slice(None),) * dim0 + (slice(-offset, None),)] if offset < 0 else first
    kept = [d for d in range(x.ndim) if d not in (dim0, dim1)]
    length = min(first.shape[dim0], first.shape[dim1])
    return as_strided(
        first,
        [*(x.shape[d] for d in kept), length],
        [*(x.strides[d] for d in kept), x.strides[dim0] + x.strides[dim1]],
    )


def unfold(x, dim, size, step):
    count = (x.shape[dim] - size) // step + 1
    shape = [*x.shape[:dim], count, *x.shape[dim + 1 :], size]
    strides = [*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim]]
    return as_strided(x, shape, strides)


def cat(parts, dim):
    return np.concatenate(parts, dim)


def stack(parts, dim):
    return np.stack(parts, dim)


def index_select(x, dim, rows):
    return np.take(x, rows, dim)


def gather(x, dim, places):
    return np.take_along_axis(x, places, dim)


def masked_select(x, mask):
    return x[mask]


def index_add(x, dim, rows, source):
    result = np.moveaxis(x.copy(), dim, 0)
    np.add.at(result, rows, np.moveaxis(source, dim, 0))
    return np.moveaxis(result, 0, dim)


def scatter(x, dim, places, source):
    result = x.copy()
    np.put_along_axis(result, places, source, dim)
    return result


def scatter_add(x, dim, places, source):
    result = x.copy()
    at = list(np.indices(places.shape))
    at[dim] = places
    np.add.at(result, tuple(at), source)
    return result


def mul_(x, other):
    x *= other


def add_(x, other):
    x += other


def fill_(x, number):
    x[...] = number


def copy_(x, source):
    x[...] = source


def masked_fill_(x, mask, number):
    x[mask] = number


def clamp_(x, low, high):
    x[...] = np.clip(x, low, high)


def index_fill_(x, dim, rows, number):
    x[(slice(None),) * dim + (rows,)] = number
