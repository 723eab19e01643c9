# SPDX-License-Identifier: Apache-2.0
"""Initializers with PyTorch's names, as weft.nn.init. A parameter without memory gets its values
when it is materialized; otherwise its elements change at once. The bits are the same for any
layout."""

from weft._weft import (
    _init_calculate_gain as calculate_gain,
    _init_constant_ as constant_,
    _init_kaiming_normal_ as kaiming_normal_,
    _init_kaiming_uniform_ as kaiming_uniform_,
    _init_normal_ as normal_,
    _init_uniform_ as uniform_,
    _init_xavier_normal_ as xavier_normal_,
    _init_xavier_uniform_ as xavier_uniform_,
)


def zeros_(tensor):
    """Fills with zeros."""
    return constant_(tensor, 0.0)


def ones_(tensor):
    """Fills with ones."""
    return constant_(tensor, 1.0)
