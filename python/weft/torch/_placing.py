# SPDX-License-Identifier: Apache-2.0
"""Selection and placing of elements with PyTorch's arguments."""

from weft import _weft
from weft._arguments import described as _described, tensor_of as _tensor_of
from weft.torch._wrappers import LISTS as _LISTS


def nonzero(input, *, as_tuple=False):
    """The indices of the nonzero elements: [n, dims], or a tensor for each dim."""
    input = _tensor_of(input)
    if as_tuple:
        return _weft.nonzero(_weft.atleast_1d(input))
    return _weft.argwhere(input)


def nonzero_static(input, *, size, fill_value=-1):
    """The first `size` rows of nonzero, with rows of fill_value where there are fewer."""
    return _weft._nonzero_static(input, size, fill_value)


def slice(input, dim=0, start=None, end=None, step=1):
    """Elements start, start + step, ... before end of `dim`."""
    return _weft._slice(input, dim, start, end, step)


def gather(input, dim, index, *, sparse_grad=False):
    """Element index[.., i, ..] along `dim` for each element of `index`."""
    if index.numel() == 0 or (input.ndim <= 1 and index.ndim <= 1):
        return _weft._take_flat(input, index)
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
