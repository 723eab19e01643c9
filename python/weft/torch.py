# SPDX-License-Identifier: Apache-2.0
"""PyTorch's names with PyTorch's meaning: `import weft.torch as torch`.

Functions that mean the same in `weft` are the same objects. Those that differ are here: `max` with
indices, unbiased `std`, `equal` as one bool, `sort` as a pair, ..."""

import math

from weft import *
from weft import _weft, linalg, nn, optim
from weft._array_api._beside import tensor_of
from weft._weft import (
    abs as absolute,
    acos as arccos,
    acosh as arccosh,
    asin as arcsin,
    asinh as arcsinh,
    atan as arctan,
    atan2 as arctan2,
    atanh as arctanh,
    bfloat16,
    bitwise_invert as bitwise_not,
    bool,
    clip as clamp,
    clip,
    concat as concatenate,
    count_nonzero,
    divide as true_divide,
    equal as eq,
    float16,
    float32,
    float32 as float,
    float64,
    greater as gt,
    greater_equal as ge,
    int32,
    int32 as int,
    int64,
    less as lt,
    less_equal as le,
    multiply,
    not_equal as ne,
    outer as ger,
    reciprocal,
    take_along_axis as take_along_dim,
    transpose,
    transpose as swapaxes,
    transpose as swapdims,
    trunc as fix,
    uint8,
    unsqueeze,
    vstack as row_stack,
)

functional = nn.functional
Size = tuple
_LISTS = (list, tuple)


def _chosen(whole, along):
    """max or min: of all elements, along a dim with indices, or of two tensors."""

    def function(input, dim=None, keepdim=False, *, other=None):
        other = dim if isinstance(dim, _weft.Tensor) else other
        if other is not None:
            return (_weft.maximum if whole is _weft.max else _weft.minimum)(input, other)
        return whole(input) if dim is None else along(input, dim, keepdim)

    function.__name__ = function.__qualname__ = whole.__name__
    name = whole.__name__
    function.__doc__ = f"{name}(x); {name}(x, dim) as (values, indices); or of two tensors."
    return function


max = _chosen(_weft.max, _weft._max_along)
min = _chosen(_weft.min, _weft._min_along)


def aminmax(input, *, dim=None, keepdim=False):
    """(amin, amax)."""
    return _weft.amin(input, dim, keepdim), _weft.amax(input, dim, keepdim)


def sort(input, dim=-1, descending=False, stable=False):
    """(values, indices), always stable."""
    return _weft._sort_along(input, dim, descending)


def msort(input):
    """Sorted along dim 0."""
    return _weft.sort(input, 0)


def argsort(input, dim=-1, descending=False, stable=False):
    """The indices that sort; 0 for a tensor without dims."""
    return _weft._sort_along(input, dim, descending).indices


def equal(input, other):
    """Whether both have the same shape and elements: one bool, equal on all ranks."""
    if tuple(input.shape) != tuple(other.shape):
        return False
    same = _weft.all(_weft.equal(input, other))
    return (same.full_tensor() if same.is_sharded else same).item()


def _spread(function):
    def spread(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, (type(True),)):
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else unbiased * 1
        return function(input, dim, correction=correction, keepdims=keepdim)

    spread.__name__ = spread.__qualname__ = function.__name__
    spread.__doc__ = f"weft.{function.__name__} with correction=1."
    return spread


std = _spread(_weft.std)
var = _spread(_weft.var)


def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(std, mean)."""
    if isinstance(dim, type(True)):
        dim, unbiased = None, dim
    mean = _weft.mean(input, dim, keepdim)
    return std(input, dim, unbiased, keepdim, correction=correction), mean


def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(var, mean)."""
    if isinstance(dim, type(True)):
        dim, unbiased = None, dim
    mean = _weft.mean(input, dim, keepdim)
    return var(input, dim, unbiased, keepdim, correction=correction), mean


def _cumulative(function):
    def cumulative(input, dim, *, dtype=None):
        if tensor_of(input).ndim == 0:
            return _weft.clone(input) if dtype is None else _weft.astype(input, dtype)
        return function(input, dim, dtype=dtype)

    return cumulative


cumsum = _cumulative(_weft.cumulative_sum)
cumprod = _cumulative(_weft.cumulative_prod)


def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """weft's quantile; q may be a tensor or a list, whose quantiles make a first dim."""
    if interpolation != "linear":
        raise ValueError(f"quantile: interpolation is {interpolation!r}, expected 'linear'")
    if isinstance(q, _weft.Tensor):
        q = q.tolist()
    if not isinstance(q, list):
        return _weft._quantile(input, q, dim, keepdim)
    return _weft.stack([_weft._quantile(input, one, dim, keepdim) for one in q])


def take(input, index):
    """Elements of the flattened tensor."""
    index = tensor_of(index)
    flat = _weft.take(_weft.reshape(input, (-1,)), _weft.reshape(index, (-1,)), 0)
    return _weft.reshape(flat, index.shape)


def reshape(input, *shape):
    """The same elements in row-major order in another shape."""
    return tensor_of(input).reshape(*shape)


def movedim(input, source, destination):
    """weft.moveaxis."""
    return _weft.moveaxis(input, source, destination)


def ravel(input):
    """All elements in one dim."""
    return _weft.reshape(input, (-1,))


def squeeze(input, dim=None):
    """Without the dims of size 1, or without those of `dim` that have it."""
    input = tensor_of(input)
    dims = range(input.ndim) if dim is None else dim if isinstance(dim, _LISTS) else (dim,)
    dims = sorted({d % input.ndim for d in dims} if input.ndim else ())
    for d in reversed(dims):
        if input.shape[d] == 1:
            input = _weft.squeeze(input, d)
    return input


def cat(tensors, dim=0, *, axis=None):
    """Joined along a dim; empty tensors of one dim are left out."""
    tensors = [t for t in tensors if tuple(t.shape) != (0,)] or list(tensors)[:1]
    return _weft.concat(tensors, axis=dim if axis is None else axis)


concat = concatenate = cat


def diagonal(input, offset=0, dim1=0, dim2=1):
    """Elements (i, i + offset) of two dims, the first two unless given."""
    return _weft.diagonal(input, offset, dim1, dim2)


def trace(input):
    """The sum of the diagonal of a matrix."""
    return _weft.sum(_weft.diagonal(input))


def expand_as(input, other):
    """Expanded to the shape of the other."""
    return tensor_of(input).expand(*other.shape)


def broadcast_tensors(*tensors):
    """The tensors, each broadcast to the shape that all fit."""
    return _weft.broadcast_arrays(*tensors)


def meshgrid(*tensors, indexing="ij"):
    """Coordinates of a grid."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], _LISTS) else tensors
    return _weft.meshgrid(*tensors, indexing=indexing)


def flip(input, dims):
    """The elements of the dims given, reversed."""
    return _weft.flip(input, axis=tuple(dims) if isinstance(dims, _LISTS) else dims)


def roll(input, shifts, dims=None):
    """Moved by `shifts` along `dims`; of the flattened tensor without dims."""
    return _weft.roll(input, shifts, axis=dims or None)


def tile(input, *dims):
    """Repeated as a whole."""
    return _weft.tile(input, dims[0] if len(dims) == 1 and isinstance(dims[0], _LISTS) else dims)


def norm(input, p="fro", dim=None, keepdim=False):
    """The p-norm of all elements, or along dims."""
    order = 2.0 if p in ("fro", None) else p
    return _weft.vector_norm(input, axis=dim, keepdims=keepdim, ord=order)


def div(input, other, *, rounding_mode=None):
    """The quotient; rounding_mode "floor" or "trunc" rounds it."""
    if rounding_mode is None:
        return _weft.divide(input, other)
    if rounding_mode == "floor":
        return _weft.floor_divide(input, other)
    return _weft.trunc(_weft.divide(input, other))


divide = div


def _with_alpha(function):
    def scaled(input, other, *, alpha=1):
        return function(input, other if alpha == 1 else _weft.multiply(other, alpha))

    return scaled


add = _with_alpha(_weft.add)
sub = subtract = _with_alpha(_weft.subtract)


def clamp_min(input, min):
    """Elements below `min` become min."""
    return _weft.clip(input, min)


def clamp_max(input, max):
    """Elements above `max` become max."""
    return _weft.clip(input, None, max)


def round(input, *, decimals=0):
    """To the nearest number with so many decimals; halves to even."""
    if decimals == 0:
        return _weft.round(input)
    return _weft.round(input * 10.0**decimals) / 10.0**decimals


def logsumexp(input, dim, keepdim=False):
    """log of the sum of exp along one dim or several."""
    dims = dim if isinstance(dim, _LISTS) else (dim,)
    input = tensor_of(input)
    if input.ndim == 0:
        return _weft.clone(input)
    if len(dims) == 1:
        return _weft.logsumexp(input, dims[0], keepdim)
    most = _weft.max(input.detach(), tuple(dims), True)
    most = _weft.where(_weft.isfinite(most), most, 0.0)
    made = _weft.log(_weft.sum(_weft.exp(input - most), tuple(dims), True)) + most
    return made if keepdim else squeeze(made, dims)


def nonzero(input, *, as_tuple=False):
    """The indices of the nonzero elements: [n, dims], or a tensor for each dim."""
    return _weft.nonzero(input) if as_tuple else _weft.argwhere(input)


def where(condition, input=None, other=None):
    """input where the condition holds, other elsewhere; the indices where it holds."""
    if input is None:
        return _weft.nonzero(condition)
    return _weft.where(condition, input, other)


def numel(input):
    """The number of elements."""
    return input.numel()


def is_tensor(value):
    """Whether it is a Tensor."""
    return isinstance(value, _weft.Tensor)


def t(input):
    """A matrix transposed; other tensors of at most one dim as they are."""
    return input if tensor_of(input).ndim < 2 else tensor_of(input).t()


inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
