# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils' functions over the gradients of parameters, as weft.nn.utils."""

from weft import _weft
from weft._names import clip_grad_norm_

__all__ = ["clip_grad_norm_", "clip_grad_value_"]


def clip_grad_value_(parameters, clip_value):
    """Limits every element of the gradients to [-clip_value, clip_value]. No traffic."""
    with_gradient = [p for p in parameters if p.grad is not None]
    before = _weft.set_grad_enabled(False)
    try:
        for parameter in with_gradient:
            parameter.grad.clamp_(-clip_value, clip_value)
    finally:
        _weft.set_grad_enabled(before)
