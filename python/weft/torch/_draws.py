# SPDX-License-Identifier: Apache-2.0
"""Random tensors and new ones with PyTorch's arguments."""

import weft as _package
from weft import _weft
from weft._words import described as _described, renamed as _renamed
from weft.torch._generator import draws as _draws
from weft.torch._wrappers import LISTS as _LISTS
from weft.torch._wrappers import without_gradient_option as _without_gradient_option


def _like(make):
    def like(input, *given, dtype=None, device=None, **ignored):
        input = input if dtype is None else _weft.astype(input, dtype)
        made = make(input, *given, **{k: v for k, v in ignored.items() if k in ("low", "high")})
        return made if device is None else made.to(device)

    like.__doc__ = make.__doc__
    return _without_gradient_option(like)


def _randint_like(input, low, high=None):
    return _weft.randint_like(input, *((0, low) if high is None else (low, high)))


def _randperm(n, *, dtype=_weft.int64, device=None):
    """The numbers 0 to n - 1 in random order."""
    order = _weft.argsort(_package.rand((n,), dtype=_weft.float64))
    made = _weft.astype(order, _weft.dtype_named(dtype))
    return made if device is None else made.to(device)


rand = _draws(_without_gradient_option(_package.rand))
randn = _draws(_without_gradient_option(_package.randn))
randint = _draws(_without_gradient_option(_package.randint))
randperm = _draws(_without_gradient_option(_renamed(_randperm, "randperm")))
rand_like = _draws(_like(_weft.rand_like))
randn_like = _draws(_like(_weft.randn_like))
randint_like = _draws(_like(_randint_like))
empty_like = _like(_package.empty_like)


@_draws
def normal(mean, std=1.0, size=None, *, dtype=None, device=None, **ignored):
    """Normal values of these means and standard deviations; of `size` where both are numbers."""
    if size is not None:
        options = {} if dtype is None else {"dtype": dtype}
        return _weft.normal(tuple(size), float(mean), float(std), device=device, **options)
    return _weft._normal(mean, std)


@_draws
def bernoulli(input, p=None):
    """1 with the probability that the element, or p, is; else 0."""
    return _weft.bernoulli(input) if p is None else _weft.bernoulli(input, p)


@_draws
def multinomial(input, num_samples, replacement=False):
    """num_samples indices of the last dim, drawn in proportion to the elements."""
    return _weft.multinomial(input, num_samples, replacement)


def _sizes(size, more):
    return tuple(size) if isinstance(size, _LISTS) else (size, *more)


def new_empty(input, size, *more, dtype=None, device=None, **ignored):
    """New memory of that size, in dtype and on the device of the tensor."""
    return _package.empty(
        _sizes(size, more), dtype=dtype or input.dtype, device=device or input.device
    )


def new_empty_strided(input, size, stride, *, dtype=None, device=None, **ignored):
    """New dense memory of that size; the strides have no effect."""
    _check_strides("new_empty_strided", size, stride)
    return new_empty(input, size, dtype=dtype, device=device)


def empty_strided(size, stride, *, dtype=None, device=None, **ignored):
    """New dense memory of that size; the strides have no effect."""
    _check_strides("empty_strided", size, stride)
    return _package.empty(tuple(size), dtype=dtype, device=device)


def empty_permuted(size, physical_layout, *, dtype=None, device=None, **ignored):
    """New dense memory of that size; the order of the dims in memory has no effect."""
    if sorted(physical_layout) != list(range(len(size))):
        raise ValueError(
            f"empty_permuted: physical_layout is {_described(physical_layout)}, expected the dims"
        )
    return _package.empty(tuple(size), dtype=dtype, device=device)


def _check_strides(what, size, stride):
    if len(size) != len(stride):
        raise ValueError(f"{what}: stride has {len(stride)} numbers, expected {len(size)}")


def _random_(self, low=0, high=None, *, generator=None):
    """Draws integers in [low, high), in [0, low) without high, in place."""
    low, high = (low, high) if high is not None else (0, low or 2**24)
    return _weft._random_(self, low, high)


_weft.Tensor.random_ = _random_
