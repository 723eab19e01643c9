# SPDX-License-Identifier: Apache-2.0
"""Discrete Fourier transforms: the array standard's extension `fft`, and PyTorch's functions of
that name.

A transformed dim must be whole on a rank: a cut of it moves to another dim in one exchange. Cuts of
the other dims stay. Gradients are transforms."""

from weft import _weft
from weft._arguments import accept_words as _accept_words

_BACKWARD = "backward"


def _one_dim(name, text):
    function = getattr(_weft, f"_fft_{name}")

    def transform(x, n=None, axis=-1, norm=_BACKWARD):
        return function(x, n, axis, _BACKWARD if norm is None else norm)

    return _named(transform, name, text)


def _many_dims(name, text, axes=None):
    function = getattr(_weft, f"_fft_{name[:-1]}n" if axes else f"_fft_{name}")
    preset = axes

    def transform(x, s=None, axes=preset, norm=_BACKWARD):
        return function(x, s, axes, _BACKWARD if norm is None else norm)

    return _named(transform, name, text)


def _shift(name, text):
    function = getattr(_weft, f"_fft_{name}")

    def shift(x, axes=None):
        return function(x, axes)

    return _named(shift, name, text)


def _frequencies(name, text):
    function = getattr(_weft, f"_fft_{name}")

    def frequencies(n, d=1.0, *, dtype=None, device=None, mesh=None, placements=None):
        if device is not None and _weft.Device("cpu") != device:
            raise ValueError(f"{name}: device is {device}, expected cpu")
        dtype = _weft.float32 if dtype is None else _weft.dtype_named(dtype)
        return function(n, d, dtype, mesh, placements)

    return _named(frequencies, name, text)


def _named(function, name, text):
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


fft = _one_dim("fft", "The discrete Fourier transform along `axis`, padded or cut to `n`.")
ifft = _one_dim("ifft", "The inverse of fft.")
rfft = _one_dim("rfft", "The first n / 2 + 1 frequencies of a real tensor along `axis`.")
irfft = _one_dim("irfft", "The real tensor with these frequencies; n is 2 (size - 1) by default.")
hfft = _one_dim("hfft", "The real frequencies of half of a sequence with conjugate symmetry.")
ihfft = _one_dim("ihfft", "The inverse of hfft.")
fftn = _many_dims("fftn", "The transform over `axes`: all, or the last len(s).")
ifftn = _many_dims("ifftn", "The inverse of fftn.")
rfftn = _many_dims("rfftn", "The transform of a real tensor; half of the last of the axes.")
irfftn = _many_dims("irfftn", "The inverse of rfftn.")
fft2 = _many_dims("fft2", "The transform over the last two dims.", (-2, -1))
ifft2 = _many_dims("ifft2", "The inverse of fft2.", (-2, -1))
rfft2 = _many_dims("rfft2", "The transform of a real tensor over the last two dims.", (-2, -1))
irfft2 = _many_dims("irfft2", "The inverse of rfft2.", (-2, -1))
fftfreq = _frequencies("fftfreq", "The frequencies of fft's results, for samples `d` apart.")
rfftfreq = _frequencies("rfftfreq", "The frequencies of rfft's results, for samples `d` apart.")
fftshift = _shift("fftshift", "Moves frequency 0 to the middle of `axes`, or of all dims.")
ifftshift = _shift("ifftshift", "Moves frequency 0 back to the start.")

_accept_words(globals())
