# SPDX-License-Identifier: Apache-2.0
"""Factories and random tensors with PyTorch's arguments, and streams of random numbers."""

import functools as _functools

import weft as _package
from weft import _weft
from weft._arguments import described as _described, renamed as _renamed
from weft.torch._wrappers import LISTS as _LISTS
from weft.torch._wrappers import without_gradient_option as _without_gradient_option


def broadcast_shapes(*shapes):
    """The shape that all broadcast to."""
    shapes = [(s,) if isinstance(s, type(1)) else tuple(s) for s in shapes]
    tensors = [_package.empty(shape, device="meta") for shape in shapes]
    return tuple(_weft.broadcast_arrays(*tensors)[0].shape) if shapes else ()


def _new(make):
    def new(input, size, *values, dtype=None, device=None):
        size = size if isinstance(size, _LISTS) else (size, *values)
        values = values if isinstance(size, _LISTS) and make is _package.full else ()
        return make(tuple(size), *values, dtype=dtype or input.dtype, device=device or input.device)

    new.__doc__ = f"weft.{make.__name__} in the dtype and on the device of input."
    return _without_gradient_option(_renamed(new, f"new_{make.__name__}"))


new_zeros = _new(_package.zeros)
new_ones = _new(_package.ones)
new_full = _new(_package.full)
new_empty = _new(_package.empty)


def _logspace(start, end, steps, base=10.0, *, dtype=None, **options):
    """`steps` powers of `base`, whose exponents are evenly spaced from `start` to `end`."""
    powers = _weft.pow(base * 1.0, _package.linspace(start, end, steps, **options))
    return powers if dtype is None else _weft.astype(powers, dtype)


arange = _without_gradient_option(_package.arange)
asarray = _without_gradient_option(_package.asarray)
eye = _without_gradient_option(_package.eye)
full = _without_gradient_option(_package.full)
linspace = _without_gradient_option(_package.linspace)
logspace = _without_gradient_option(_logspace)
zeros_like = _without_gradient_option(_package.zeros_like)
ones_like = _without_gradient_option(_package.ones_like)
full_like = _without_gradient_option(_package.full_like)


@_without_gradient_option
def scalar_tensor(value, *, dtype=None, device=None):
    """A tensor without dims; float32 unless a dtype is given."""
    return _package.asarray(value, dtype=dtype or _weft.float32, device=device)


def as_tensor(data, *, dtype=None, device=None):
    """A tensor as it is, where dtype and device are its own; else a new one."""
    if not isinstance(data, _weft.Tensor):
        return _package.tensor(data, dtype=dtype, **({} if device is None else {"device": device}))
    made = data if dtype is None else _weft.astype(data, dtype, copy=False)
    return made if device is None else made.to(device)


class Generator:
    """A stream of random numbers. Functions with `generator=` draw from it, and leave the rank's
    stream as it is. Ranks that seed it alike draw alike."""

    def __init__(self, device="cpu"):
        self.device = device
        self.manual_seed(_SEED)

    def manual_seed(self, seed):
        """Begins the stream of that seed; returns the generator."""
        before = _weft.get_rng_state()
        _weft.manual_seed(seed)
        self._seed, self._state = seed, _weft.get_rng_state()
        _weft.set_rng_state(before)
        return self

    def initial_seed(self):
        """The seed of the stream."""
        return self._seed

    def get_state(self):
        """Returns the place of the stream, for set_state."""
        return self._state

    def set_state(self, state):
        """Lets the stream go on from there; returns the generator."""
        self._state = state
        return self

    def draw(self, function):
        """Returns what function() returns with this stream in place of the rank's."""
        before = _weft.get_rng_state()
        _weft.set_rng_state(self._state)
        try:
            return function()
        finally:
            self._state = _weft.get_rng_state()
            _weft.set_rng_state(before)


# PyTorch's seed of a new generator.
_SEED = 67280421310721


def _draws(function):
    """The function with an argument `generator`."""

    @_functools.wraps(function)
    def drawn(*given, generator=None, **named):
        if generator is None:
            return function(*given, **named)
        if not isinstance(generator, Generator):
            raise TypeError(
                f"{function.__name__}: generator is {_described(generator)}, expected a Generator"
            )
        return generator.draw(lambda: function(*given, **named))

    return drawn


def _like(make):
    def like(input, *given, dtype=None, device=None, **named):
        input = input if dtype is None else _weft.astype(input, dtype)
        if input.is_sharded and device is not None:
            return make(input, *given, **named).to(device)
        return make(input, *given, device=device, **named)

    like.__doc__ = make.__doc__
    return _without_gradient_option(_renamed(like, make.__name__))


def _randint_like(input, low, high=None, *, device=None):
    """Whole numbers from `low` to below `high` (from 0 to below `low`), laid out as `input`."""
    return _weft.randint_like(input, *((0, low) if high is None else (low, high)), device=device)


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
multinomial = _draws(_weft.multinomial)


@_draws
@_without_gradient_option
def normal(mean, std=1.0, size=None, *, dtype=None, device=None):
    """Normal values of these means and standard deviations; of `size` where both are numbers."""
    if size is not None:
        return _weft.normal(tuple(size), float(mean), float(std), dtype=dtype, device=device)
    return _weft._normal(mean, std)


@_draws
def bernoulli(input, p=None):
    """1 with the probability that the element, or p, is; else 0."""
    return _weft.bernoulli(input) if p is None else _weft.bernoulli(input, p)


@_without_gradient_option
def new_empty_strided(input, size, stride, *, dtype=None, device=None):
    """New dense memory of that size; the strides have no effect."""
    _check_strides("new_empty_strided", size, stride)
    return new_empty(input, size, dtype=dtype, device=device)


@_without_gradient_option
def empty_strided(size, stride, *, dtype=None, device=None):
    """New dense memory of that size; the strides have no effect."""
    _check_strides("empty_strided", size, stride)
    return _package.empty(tuple(size), dtype=dtype, device=device)


@_without_gradient_option
def empty_permuted(size, physical_layout, *, dtype=None, device=None):
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
