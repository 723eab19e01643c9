# SPDX-License-Identifier: Apache-2.0
"""Initializers with PyTorch's names, as weft.nn.init. A parameter without memory gets its values
when it is materialized; otherwise its elements change at once. The bits are the same for any
layout."""

from weft import _weft


def constant_(tensor, val):
    """Fills with `val`."""
    return _weft._constant_(tensor, val)


def zeros_(tensor):
    """Fills with zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor):
    """Fills with ones."""
    return constant_(tensor, 1.0)


def normal_(tensor, mean=0.0, std=1.0):
    """Fills from a normal distribution."""
    return _weft._init_normal_(tensor, mean, std)


def uniform_(tensor, a=0.0, b=1.0):
    """Fills from a uniform distribution on [a, b)."""
    return _weft._init_uniform_(tensor, a, b)


def xavier_uniform_(tensor, gain=1.0):
    """Fills uniformly within +-gain * sqrt(6 / (inputs + outputs)) (Glorot and Bengio, 2010)."""
    return _weft._xavier_uniform_(tensor, gain)


def xavier_normal_(tensor, gain=1.0):
    """Fills from a normal distribution of deviation gain * sqrt(2 / (inputs + outputs))."""
    return _weft._xavier_normal_(tensor, gain)


def calculate_gain(nonlinearity, param=None):
    """The factor that keeps deviations constant through a nonlinearity."""
    return _weft._calculate_gain(nonlinearity, param)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """Fills uniformly within +-sqrt(3) deviations of kaiming_normal_ (He et al., 2015)."""
    return _weft._kaiming_uniform_(tensor, a, mode, nonlinearity)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """Normal, of deviation gain / sqrt(inputs), or gain / sqrt(outputs) (He et al., 2015)."""
    return _weft._kaiming_normal_(tensor, a, mode, nonlinearity)
