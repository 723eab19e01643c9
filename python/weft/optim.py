# SPDX-License-Identifier: Apache-2.0
"""Optimizers and learning rates."""

from weft._weft import SGD, AdamW, Lamb, Optimizer, WarmupCosine

__all__ = ["AdamW", "Lamb", "Optimizer", "SGD", "WarmupCosine"]
