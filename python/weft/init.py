# SPDX-License-Identifier: Apache-2.0
"""Initializers with PyTorch's names, as weft.nn.init. A parameter without memory gets its values
when it is materialized; otherwise its elements change at once. The bits are the same for any
layout."""

import math

from weft import _weft


def _fill(tensor, fill):
    """Calls fill(values) now, or when the parameter has memory."""
    if isinstance(tensor, _weft.Parameter) and not tensor.is_materialized:
        tensor.set_init(fill)
    else:
        fill(tensor.data if isinstance(tensor, _weft.Parameter) else tensor.detach())
    return tensor


def constant_(tensor, val):
    """Fills with `val`."""
    return _fill(tensor, lambda values: _weft.fill_(values, val))


def zeros_(tensor):
    """Fills with zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor):
    """Fills with ones."""
    return constant_(tensor, 1.0)


def normal_(tensor, mean=0.0, std=1.0):
    """Fills from a normal distribution."""
    return _fill(tensor, lambda values: _weft.normal_(values, mean, std))


def uniform_(tensor, a=0.0, b=1.0):
    """Fills from a uniform distribution on [a, b)."""
    return _fill(tensor, lambda values: _weft.uniform_(values, a, b))


def _fans(what, tensor):
    """(inputs, outputs) of a weight [out, in, ...]."""
    shape = tensor.shape
    if len(shape) < 2:
        raise ValueError(f"{what}: shape is {shape}, expected at least 2 dims")
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def xavier_uniform_(tensor, gain=1.0):
    """Fills uniformly within +-gain * sqrt(6 / (inputs + outputs)) (Glorot and Bengio, 2010)."""
    bound = gain * math.sqrt(6 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor, gain=1.0):
    """Fills from a normal distribution of deviation gain * sqrt(2 / (inputs + outputs))."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(_fans("xavier_normal_", tensor))))


_GAINS = {"relu": math.sqrt(2), "linear": 1.0, "sigmoid": 1.0, "tanh": 5 / 3}


def calculate_gain(nonlinearity, param=None):
    """The factor that keeps deviations constant through a nonlinearity."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        known = ", ".join([*_GAINS, "leaky_relu"])
        raise ValueError(
            f"calculate_gain: nonlinearity is {nonlinearity!r}, expected one of {known}"
        )
    return _GAINS[nonlinearity]


def _deviation(what, tensor, a, mode, nonlinearity):
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"{what}: mode is {mode!r}, expected 'fan_in' or 'fan_out'")
    fan = _fans(what, tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """Fills uniformly within +-sqrt(3) deviations of kaiming_normal_ (He et al., 2015)."""
    bound = math.sqrt(3) * _deviation("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu"):
    """Normal, of deviation gain / sqrt(inputs), or gain / sqrt(outputs) (He et al., 2015)."""
    deviation = _deviation("kaiming_normal_", tensor, a, mode, nonlinearity)
    return normal_(tensor, 0.0, deviation)
