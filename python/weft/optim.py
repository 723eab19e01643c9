# SPDX-License-Identifier: Apache-2.0
"""Optimizers and learning rates."""

from collections.abc import MutableMapping

from weft._weft import SGD, AdamW, Lamb, Optimizer, WarmupCosine

__all__ = ["Adam", "AdamW", "Lamb", "Optimizer", "SGD", "WarmupCosine"]


class Adam(AdamW):
    """AdamW without weight decay; decay that is added to the gradients is not supported."""

    def __init__(
        self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, **options
    ):
        if weight_decay:
            raise ValueError(
                f"Adam: weight_decay {weight_decay} would be added to the gradients; AdamW's is not"
            )
        super().__init__(parameters, lr, betas, eps, 0.0, **options)


class _Group(MutableMapping):
    """The only group of an optimizer's parameters; its "lr" can be set."""

    def __init__(self, optimizer):
        self._optimizer = optimizer

    def __getitem__(self, name):
        if name != "lr":
            raise KeyError(name)
        return self._optimizer.lr

    def __setitem__(self, name, value):
        if name != "lr":
            raise ValueError(f"param_groups: {name!r} stays as it was given; 'lr' can be changed")
        self._optimizer.lr = value

    def __delitem__(self, name):
        raise ValueError(f"param_groups: {name!r} cannot be left out")

    def __iter__(self):
        return iter(["lr"])

    def __len__(self):
        return 1


def _param_groups(self):
    """One group of all parameters, whose "lr" can be set."""
    return [_Group(self)]


Optimizer.param_groups = property(_param_groups)
