# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils' functions over the gradients of parameters, as weft.nn.utils."""

from weft._weft import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]
