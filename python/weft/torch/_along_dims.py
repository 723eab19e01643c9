# SPDX-License-Identifier: Apache-2.0
"""Reductions, and elements that are sorted, searched, selected and placed, as in PyTorch."""

from weft import _weft, linalg as _linalg
from weft._arguments import described as _described, renamed as _renamed
from weft._arguments import tensor_of as _tensor_of
from weft._weft import _torch_all as all, _torch_amax as amax, _torch_amin as amin
from weft._weft import _torch_any as any, _torch_argmax as argmax, _torch_argmin as argmin
from weft._weft import _torch_count_nonzero as count_nonzero, _torch_cumprod as cumprod
from weft._weft import _torch_cumsum as cumsum, _torch_log_softmax as log_softmax
from weft._weft import _torch_logsumexp as logsumexp, _torch_max as max, _torch_mean as mean
from weft._weft import _torch_min as min, _torch_nanmean as nanmean, _torch_nansum as nansum
from weft._weft import _torch_prod as prod, _torch_softmax as softmax, _torch_sum as sum
from weft.torch._wrappers import LISTS as _LISTS


def aminmax(input, *, dim=None, keepdim=False):
    """(amin, amax)."""
    return amin(input, dim, keepdim), amax(input, dim, keepdim)


def sort(input, dim=-1, descending=False, stable=False):
    """(values, indices), always stable."""
    return _weft._sort_along(input, dim, descending)


def msort(input):
    """Sorted along dim 0."""
    return _weft.sort(input, 0)


def argsort(input, dim=-1, descending=False, stable=False):
    """The indices that sort; 0 for a tensor without dims."""
    return _weft._sort_along(input, dim, descending).indices


def _spread(function):
    def spread(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, type(True)):
            dim, unbiased = None, dim
        if isinstance(dim, _LISTS) and not dim:
            dim = None
        if correction is None:
            correction = 1 if unbiased is None else unbiased * 1
        return function(input, dim, correction=correction, keepdims=keepdim)

    spread.__doc__ = f"weft.{function.__name__} with correction=1."
    return _renamed(spread, function.__name__)


def _with_mean(spread):
    """The function, which returns the mean too."""

    def both(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        mean = _weft.mean(input, None if isinstance(dim, type(True)) else dim, keepdim)
        return spread(input, dim, unbiased, keepdim, correction=correction), mean

    both.__doc__ = f"({spread.__name__}, mean)."
    return _renamed(both, f"{spread.__name__}_mean")


std = _spread(_weft.std)
var = _spread(_weft.var)
std_mean = _with_mean(std)
var_mean = _with_mean(var)


def logcumsumexp(input, dim):
    """log(sum(exp)) of all elements up to each; a tensor without dims stays."""
    return _weft.clone(input) if _tensor_of(input).ndim == 0 else _weft.logcumsumexp(input, dim)


def _quantiles(function):
    def quantiles(input, q, dim=None, keepdim=False, *, interpolation="linear"):
        if isinstance(q, _weft.Tensor):
            q = q.full_tensor().tolist()
        return function(input, q, dim, keepdim, interpolation=interpolation)

    quantiles.__doc__ = f"weft.{function.__name__}; q may be a tensor too."
    return _renamed(quantiles, function.__name__)


quantile = _quantiles(_weft.quantile)
nanquantile = _quantiles(_weft.nanquantile)


def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    """The p-norm of all elements, or along dims."""
    if p == "nuc":
        return _linalg.matrix_norm(input, p, (-2, -1) if dim is None else dim, keepdim)
    order = 2.0 if p in ("fro", None) else p
    if not isinstance(order, (type(1), type(1.0))):
        raise ValueError(f"norm: p is {_described(p)}, expected a number, 'fro' or 'nuc'")
    input = _tensor_of(input)
    input = input if dtype is None else _weft.astype(input, dtype)
    if input.ndim == 0:
        return _weft.reshape(norm(_weft.unsqueeze(input, 0), order), ())
    dim = None if dim in ((), []) else dim
    return _weft.vector_norm(input, axis=dim, keepdims=keepdim, ord=order)


def searchsorted(
    sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None
):
    """The positions in a sorted vector before (`right`: behind) which the elements belong."""
    side = side or ("right" if right else "left")
    found = _weft.searchsorted(sorted_sequence, _tensor_of(input), side=side, sorter=sorter)
    return _weft.astype(found, _weft.int32) if out_int32 else found


def bucketize(input, boundaries, *, out_int32=False, right=False):
    """searchsorted(boundaries, input)."""
    found = _weft.bucketize(_tensor_of(input), boundaries, right)
    return _weft.astype(found, _weft.int32) if out_int32 else found


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements in ascending order, and what else is asked for."""
    if dim is not None:
        raise ValueError(f"unique: dim is {_described(dim)}, expected None")
    if not return_inverse and not return_counts:
        return _weft.unique_values(input)
    found = _weft.unique_all(input)
    others = [found.inverse_indices] * bool(return_inverse) + [found.counts] * bool(return_counts)
    return (found.values, *others)


def isreal(input):
    """True where the imaginary part is 0."""
    if input.dtype.is_complex:
        return _weft.equal(_weft.imag(input), 0)
    return _weft.equal(_weft.isnan(input), _weft.isnan(input))


def cov(input, *, correction=1, fweights=None, aweights=None):
    """Covariances of the rows of a matrix [variables, observations], which may have weights."""
    if fweights is None and aweights is None:
        return _weft.cov(input, correction=correction)
    return _weft._weighted_cov(input, correction, fweights, aweights)


def nonzero(input, *, as_tuple=False):
    """The indices of the nonzero elements: [n, dims], or a tensor for each dim."""
    input = _tensor_of(input)
    if as_tuple:
        return _weft.nonzero(_weft.atleast_1d(input))
    return _weft.argwhere(input)


def gather(input, dim, index, *, sparse_grad=False):
    """Element index[.., i, ..] along `dim` for each element of `index`."""
    if index.numel() == 0 or (input.ndim <= 1 and index.ndim <= 1):
        return _weft._torch_take(input, index)
    return _weft.gather(input, dim, index)


def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """src[.., i, ..] in the place of element index[.., i, ..] along `dim`; the last of equal
    indices stays. reduce="add" adds, "multiply" multiplies."""
    src = value if src is None else src
    if reduce is None:
        return _weft._scatter_along(input, dim, index, src)
    if reduce not in ("add", "multiply"):
        raise ValueError(
            f"scatter: reduce is {_described(reduce)}, expected None, 'add' or 'multiply'"
        )
    if not isinstance(src, _weft.Tensor):
        src = _weft.fill(_weft.astype(index, input.dtype), src)
    kind = "sum" if reduce == "add" else "prod"
    return _weft.scatter_reduce(input, dim, index, src, kind)


def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """Elements start, start + step, ... before end of `dim` replaced by src."""
    end = input.shape[dim] if end is None else end
    return _weft._slice_scatter(input, src, dim, start or 0, end, step)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """Elements, or slices of `dim`, without their direct repetitions, and what else is asked
    for."""
    values, inverse, counts = _weft._unique_consecutive(input, dim)
    made = [values] + [inverse] * bool(return_inverse) + [counts] * bool(return_counts)
    return made[0] if len(made) == 1 else tuple(made)


def _pairs(dims, ndim):
    if isinstance(dims, int):
        if not 0 <= dims <= ndim:
            raise ValueError(f"tensordot: dims is {dims}, expected 0 to {ndim}")
        return list(range(ndim - dims, ndim)), list(range(dims))
    first, second = dims if isinstance(dims, _LISTS) else dims.tolist()
    return list(first), list(second)


def tensordot(a, b, dims=2):
    """Sums of products over pairs of dims, or over the last dims of a and the first of b."""
    of_a, of_b = _pairs(dims, a.ndim)
    return _weft._tensordot(a, b, of_a, of_b)


def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Estimates of the derivatives along the dims: a list of tensors."""
    dims = [] if dim is None else list(dim) if isinstance(dim, _LISTS) else [dim]
    spacing = 1 if spacing is None else spacing
    spacing = list(spacing) if isinstance(spacing, _LISTS) else [spacing]
    return list(_weft._gradient(input, spacing, dims, edge_order))
