# SPDX-License-Identifier: Apache-2.0
"""Initializers with PyTorch's names, as weft.nn.init. A parameter without memory gets its values
when it is materialized; otherwise its elements change at once. The bits are the same for any
layout."""

from weft import _weft

calculate_gain = _weft._init_calculate_gain
constant_ = _weft._init_constant_
kaiming_normal_ = _weft._init_kaiming_normal_
kaiming_uniform_ = _weft._init_kaiming_uniform_
normal_ = _weft._init_normal_
uniform_ = _weft._init_uniform_
xavier_normal_ = _weft._init_xavier_normal_
xavier_uniform_ = _weft._init_xavier_uniform_


def zeros_(tensor):
    """Fills with zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor):
    """Fills with ones."""
    return constant_(tensor, 1.0)
