# SPDX-License-Identifier: Apache-2.0
"""PyTorch's names with PyTorch's meaning: `import weft.torch as torch`.

Functions that mean the same in `weft` are the same objects. Those that differ are here: `max` with
indices, unbiased `std`, `equal` as one bool, `sort` as a pair, ..."""

import operator as _operator
import sys as _sys

import weft as _package
from weft import *
from weft import _weft, linalg, nn, optim
from weft._arguments import tensor_of
from weft._weft import abs as absolute, acos as arccos, acosh as arccosh, asin as arcsin
from weft._weft import asinh as arcsinh, atan as arctan, atan2 as arctan2, atanh as arctanh
from weft._weft import bitwise_invert as bitwise_not, broadcast_arrays as broadcast_tensors
from weft._weft import clip as clamp, divide as true_divide, equal as eq, float32 as float
from weft._weft import greater as gt, greater_equal as ge, int32 as int, less as lt
from weft._weft import less_equal as le, moveaxis as movedim, not_equal as ne, outer as ger
from weft._weft import trunc as fix, vstack as row_stack
from weft.torch._along_dims import *
from weft.torch._creation import *
from weft._weft import _torch_add as add, _torch_cat as cat, _torch_cat as concat
from weft._weft import _torch_cat as concatenate, _torch_constant_pad_nd as constant_pad_nd
from weft._weft import _torch_diagonal as diagonal, _torch_equal as equal
from weft._weft import _torch_nonzero_static as nonzero_static, _torch_roll as roll
from weft._weft import _torch_round as round, _torch_slice as slice, _torch_squeeze as squeeze
from weft._weft import _torch_subtract as sub, _torch_subtract as subtract, _torch_take as take
from weft.torch._wrappers import LISTS, add_in_place_methods, add_methods, copying, each
from weft.torch._wrappers import elements_and_size, method

functional = nn.functional
Size = tuple


def reshape(input, *shape):
    """The same elements in row-major order in another shape."""
    return tensor_of(input).reshape(*shape)


def ravel(input):
    """All elements in one dim."""
    return _weft.reshape(input, (-1,))


def trace(input):
    """The sum of the diagonal of a matrix."""
    return sum(_weft.diagonal(input))


def expand_as(input, other):
    """Expanded to the shape of the other."""
    return tensor_of(input).expand(*other.shape)


def meshgrid(*tensors, indexing="ij"):
    """Coordinates of a grid."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], LISTS) else tensors
    return _weft.meshgrid(*(_weft.atleast_1d(x) for x in tensors), indexing=indexing)


def tile(input, *dims):
    """Repeated as a whole, dims[i] times along dim i."""
    return _weft.tile(input, dims[0] if len(dims) == 1 and isinstance(dims[0], LISTS) else dims)


repeat = tile

def div(input, other, *, rounding_mode=None):
    """The quotient; rounding_mode "floor" or "trunc" rounds it."""
    if rounding_mode is None:
        return _weft.divide(input, other)
    return _weft._rounded_quotient(input, other, rounding_mode)


divide = div


def clamp_min(input, min):
    """Elements below `min` become min."""
    return _weft.clip(input, min)


def clamp_max(input, max):
    """Elements above `max` become max."""
    return _weft.clip(input, None, max)


def where(condition, input=None, other=None):
    """input where the condition holds, other elsewhere; the indices where it holds."""
    if input is None:
        return _weft.nonzero(condition)
    return _weft.where(condition, input, other)


def take_along_dim(input, indices, dim=None):
    """Elements `indices` along `dim`; of the flattened tensor without a dim."""
    if dim is None:
        return _weft.take_along_axis(ravel(input), ravel(indices), 0)
    return _weft.take_along_axis(input, indices, dim)


def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Differences of neighbours along `dim`, n times."""
    return _weft.diff(input, axis=dim, n=n, prepend=prepend, append=append)


atleast_1d = each(_weft.atleast_1d)
atleast_2d = each(_weft.atleast_2d)
atleast_3d = each(_weft.atleast_3d)


def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    """Each element of `dim` (of the flattened tensor without one) repeated."""
    return _weft.repeat(input, repeats, axis=dim)


def sum_to_size(input, *size):
    """Summed over the dims that broadcasting from `size` would repeat."""
    size = tuple(size[0]) if len(size) == 1 and isinstance(size[0], LISTS) else size
    extra = input.ndim - len(size)
    dims = [d for d in range(input.ndim) if d < extra or size[d - extra] != input.shape[d]]
    summed = _weft.sum(input, tuple(dims), True) if dims else _weft.clone(input)
    return _weft.reshape(summed, size)


real = resolve_conj = resolve_neg = conj


def view_as(input, other):
    """Reshaped to the shape of the other."""
    return _weft.reshape(input, other.shape)


reshape_as = view_as
trapz = trapezoid
vdot = dot
sgn = sign
conj_physical = clone
split_with_sizes = unsafe_split = split
unsafe_chunk = chunk
alias_copy = clone
diagonal_copy = copying(diagonal)
expand_copy = copying(_weft.Tensor.expand)
narrow_copy = copying(narrow)
permute_copy = copying(permute, "permute")
split_with_sizes_copy = copying(split, "split_with_sizes")
squeeze_copy = copying(squeeze)
unbind_copy = copying(unbind)
unfold_copy = copying(unfold)
unsqueeze_copy = copying(unsqueeze)
view_copy = copying(_weft.Tensor.reshape, "view")


as_strided_copy = as_strided


def to(input, *given, **named):
    """The same values as another dtype or on another device: Tensor.to."""
    return input.to(*given, **named)


def numel(input):
    """The number of elements."""
    return input.numel()


def is_tensor(value):
    """Whether it is a Tensor."""
    return isinstance(value, _weft.Tensor)


def transpose(input, dim0, dim1):
    """Two dims exchanged; a tensor without dims as it is."""
    return input if tensor_of(input).ndim == 0 else _weft.transpose(input, dim0, dim1)


swapaxes = swapdims = transpose
transpose_copy = copying(transpose)


def t(input):
    """A matrix transposed; other tensors of at most one dim as they are."""
    return input if tensor_of(input).ndim < 2 else tensor_of(input).t()


t_copy = copying(t)


add_methods(globals())
add_in_place_methods(globals())
# The compiled methods have no indices.
_weft.Tensor.max, _weft.Tensor.min = method(max), method(min)
for _name in ("nn", "nn.functional", "nn.init", "optim", "optim.lr_scheduler"):
    _sys.modules[f"{__name__}.{_name}"] = _operator.attrgetter(_name)(_package)


_weft.Tensor.size = property(
    elements_and_size,
    doc="Elements of the whole tensor; size() is the shape, size(dim) one of its sizes",
)
_weft.Tensor.H = _weft.Tensor.mH = property(
    lambda self: self.mT, doc="mT: there are no complex dtypes."
)
