# SPDX-License-Identifier: Apache-2.0
"""PyTorch's names with PyTorch's meaning: `import weft.torch as torch`.

Functions that mean the same in `weft` are the same objects. Those that differ are here: `max` with
indices, unbiased `std`, `equal` as one bool, `sort` as a pair, ..."""

import builtins as _builtins
import operator as _operator
import sys as _sys

import weft as _package
from weft import *
from weft import _weft, autograd, linalg, nn, optim
from weft._arguments import described as _described, telling as _telling
from weft._arguments import tensor_of as _tensor_of
from weft._array_api._dtypes import dtype_of as _dtype_of
from weft._weft import abs as absolute, acos as arccos, acosh as arccosh, asin as arcsin
from weft._weft import asinh as arcsinh, atan as arctan, atan2 as arctan2, atanh as arctanh
from weft._weft import bitwise_invert as bitwise_not, broadcast_arrays as broadcast_tensors
from weft._weft import clip as clamp, divide as true_divide, equal as eq, float32 as float
from weft._weft import greater as gt, greater_equal as ge, int32 as int, less as lt
from weft._weft import less_equal as le, moveaxis as movedim, not_equal as ne, outer as ger
from weft._weft import trunc as fix, vstack as row_stack
from weft.torch._along_dims import *
from weft.torch._creation import *
from weft.torch._linear_algebra import *
from weft._weft import _torch_add as add, _torch_cat as cat, _torch_cat as concat
from weft._weft import _torch_cat as concatenate, _torch_constant_pad_nd as constant_pad_nd
from weft._weft import _torch_diagonal as diagonal, _torch_equal as equal
from weft._weft import _torch_nonzero_static as nonzero_static, _torch_roll as roll
from weft._weft import _torch_round as round, _torch_slice as slice, _torch_squeeze as squeeze
from weft._weft import _torch_subtract as sub, _torch_subtract as subtract, _torch_take as take
from weft.torch._wrappers import LISTS, add_in_place_methods, add_methods, copying, each
from weft.torch._wrappers import elements_and_size

functional = nn.functional
Size = tuple

# Tensors without dims do not decide the dtype next to tensors of their kind that have dims.
_rounded_quotient = _weft._by_dims(_weft._rounded_quotient, "div")
_where = _weft._by_dims(_weft.where, "where")
_promoting = {}
for _name in (
    "add addcdiv addcmul arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or "
    "bitwise_right_shift bitwise_xor clamp clip copysign eq floor_divide fmax fmin fmod ge greater "
    "greater_equal gt heaviside hypot igamma igammac inner ldexp le lerp less less_equal "
    "logaddexp logaddexp2 lt max maximum min minimum mul multiply ne nextafter not_equal pow "
    "remainder sub subtract true_divide xlogy"
).split():
    _plain = globals()[_name]
    if id(_plain) not in _promoting:
        _promoting[id(_plain)] = _plain, _weft._by_dims(_plain, _name)
    globals()[_name] = _promoting[id(_plain)][1]


@_telling
def result_type(tensor1, tensor2):
    """The dtype of a result of both, tensors or numbers: dims decide before none, none before
    numbers, unless the others are of a higher kind (bool, integers, floating)."""
    given = [x if type(x) in _OF_NUMBERS else _tensor_of(x) for x in (tensor1, tensor2)]
    decided = None
    for level in (
        [x.dtype for x in given if isinstance(x, Tensor) and x.ndim],
        [x.dtype for x in given if isinstance(x, Tensor) and not x.ndim],
        [_OF_NUMBERS[type(x)] for x in given if not isinstance(x, Tensor)],
    ):
        for dtype in level[:1]:
            own = promote_types(dtype, level[-1])
            if decided is None or _kind(own) > _kind(decided):
                decided = own if decided is None else promote_types(decided, own)
    return decided


@_telling
def can_cast(from_, to):
    """True when an operator in place may store that dtype as another: not floating as integers, nor
    either as bool."""
    return _kind(_dtype_of("can_cast", from_)) <= _kind(_dtype_of("can_cast", to))


promote_types = _weft.promote
_OF_NUMBERS = {type(True): _weft.bool, type(1): _weft.int64, type(1.0): _weft.float32}


def _kind(dtype):
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else dtype is not _weft.bool


def reshape(input, *shape):
    """The same elements in row-major order in another shape."""
    return _tensor_of(input).reshape(*shape)


def ravel(input):
    """All elements in one dim."""
    return _weft.reshape(input, (-1,))


def trace(input):
    """The sum of the diagonal of a matrix."""
    return sum(_weft.diagonal(input))


def _shape_of(what, other):
    if not hasattr(other, "shape"):
        raise TypeError(f"{what}: other is {_described(other)}, expected a Tensor")
    return other.shape


@_telling
def expand_as(input, other):
    """Expanded to the shape of the other."""
    return _tensor_of(input).expand(*_shape_of("expand_as", other))


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
        return true_divide(input, other)
    return _rounded_quotient(input, other, rounding_mode)


divide = div


def clamp_min(input, min):
    """Elements below `min` become min."""
    return clamp(input, min)


def clamp_max(input, max):
    """Elements above `max` become max."""
    return clamp(input, None, max)


def where(condition, input=None, other=None):
    """input where the condition holds, other elsewhere; the indices where it holds."""
    if input is None:
        return _weft.nonzero(condition)
    if isinstance(input, _builtins.int) and isinstance(other, _builtins.int):
        are_bool = isinstance(input, _builtins.bool) and isinstance(other, _builtins.bool)
        input = full_like(condition, input, dtype=_weft.bool if are_bool else _weft.int64)
    return _where(condition, input, other)


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


def resolve_conj(input):
    """The tensor itself: conjugates are computed at once."""
    return _tensor_of(input)


resolve_neg = resolve_conj


def vdot(input, other):
    """The sum of products of two vectors, the first one conjugated."""
    return _weft.dot(_weft.conj(_tensor_of(input)), other)


@_telling
def view_as(input, other):
    """Reshaped to the shape of the other."""
    return _weft.reshape(input, _shape_of("view_as", other))


reshape_as = view_as
trapz = trapezoid
sgn = sign
conj_physical = _weft.conj
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
    """True when it is a Tensor."""
    return isinstance(value, _weft.Tensor)


def transpose(input, *dims, **named):
    """Two dims exchanged; a tensor without dims as it is."""
    has_both = len(dims) + len(named) == 2
    if has_both and _tensor_of(input).ndim == 0:
        return input
    return _weft.transpose(input, *dims, **named)


swapaxes = swapdims = transpose
transpose_copy = copying(transpose)


_matrix_t = _weft.Tensor.t


def t(input):
    """A matrix transposed; other tensors of at most one dim as they are."""
    return input if _tensor_of(input).ndim < 2 else _matrix_t(_tensor_of(input))


t_copy = copying(t)


add_methods(globals())
_weft.Tensor.t = t
add_in_place_methods(globals())
for _name in ("fft", "nn", "nn.functional", "nn.init", "optim", "optim.lr_scheduler"):
    _sys.modules[f"{__name__}.{_name}"] = _operator.attrgetter(_name)(_package)


_weft.Tensor.size = property(
    elements_and_size,
    doc="Elements of the whole tensor; size() is the shape, size(dim) one of its sizes",
)
_weft.Tensor.H = _weft.Tensor.mH = property(
    lambda self: _weft.conj(self.mT), doc="The conjugates of mT."
)
