# SPDX-License-Identifier: Apache-2.0
"""Optimizers and learning rates."""

import copy
from collections.abc import MutableMapping

from weft import _weft
from weft._weft import SGD, AdamW, Lamb, Optimizer, WarmupCosine
from weft.optim import lr_scheduler

__all__ = ["Adam", "AdamW", "Lamb", "Optimizer", "SGD", "WarmupCosine", "lr_scheduler"]

_TORCH_MOMENTS = {"exp_avg": "m", "exp_avg_sq": "v", "momentum_buffer": "velocity"}


class Adam(AdamW):
    """AdamW without weight decay; decay that is added to the gradients is not supported."""

    def __init__(
        self, parameters, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, **options
    ):
        if weight_decay:
            raise ValueError(
                f"adam: weight_decay is {weight_decay}, expected 0; AdamW decays "
                "without the gradients"
            )
        super().__init__(parameters, lr, betas, eps, 0.0, **options)


class _Group(MutableMapping):
    """A group of an optimizer's parameters: "params" and the numbers, which can be set."""

    def __init__(self, optimizer, index):
        self._optimizer = optimizer
        self._index = index

    def _as_dict(self):
        parameters, numbers = self._optimizer._groups[self._index]
        if "beta1" in numbers:
            numbers["betas"] = (numbers.pop("beta1"), numbers.pop("beta2"))
        return {"params": parameters, **numbers}

    def __getitem__(self, name):
        return self._as_dict()[name]

    def __setitem__(self, name, value):
        if name not in self or name == "params":
            names = [repr(own) for own in self if own != "params"]
            raise ValueError(
                f"param_groups: {name!r} cannot be set, expected one of {', '.join(names)}"
            )
        numbers = {name: value}
        if name == "betas":
            numbers = {"beta1": value[0], "beta2": value[1]}
        for key, number in numbers.items():
            self._optimizer._set(self._index, key, number)

    def __delitem__(self, name):
        raise ValueError(f"param_groups: {name!r} is deleted, expected to stay")

    def __iter__(self):
        return iter(self._as_dict())

    def __len__(self):
        return len(self._as_dict())

    def __repr__(self):
        return repr(self._as_dict())


def _param_groups(self):
    """The groups of parameters, as PyTorch's: mappings whose numbers can be set."""
    return [_Group(self, index) for index in range(len(self._groups))]


def _state_dict(self):
    """{"state": {number: {"step": ..., moment: tensor}}, "param_groups": [...]}, as PyTorch's.

    Parameters are numbered in the order of the groups, as are those of `names`.
    `weft.state_dict(optimizer)` has names instead, and is what checkpoints contain.
    """
    state, groups, count = {}, [], 0
    for group in self.param_groups:
        numbers = list(range(count, count + len(group["params"])))
        groups.append({**group, "params": numbers})
        count += len(numbers)
    for i in range(count):
        state[i] = {"step": self.steps(i), **dict(zip(self.moments, self.state(i)))}
    return {"state": state, "param_groups": groups}


def _load_state_dict(self, state_dict):
    """Takes what `state_dict()` returned, or that of the same optimizer of PyTorch."""
    groups, own = state_dict["param_groups"], self.param_groups
    counts = [len(group["params"]) for group in groups]
    own_counts = [len(group["params"]) for group in own]
    if counts != own_counts:
        raise ValueError(
            f"load_state_dict: the groups have {counts} parameters, expected {own_counts}"
        )
    taken = []
    for i, entry in sorted(state_dict["state"].items()):
        moments = {_TORCH_MOMENTS.get(key, key): value for key, value in entry.items()}
        for name, to in zip(self.moments, self.state(i)):
            if name not in moments:
                raise ValueError(f"load_state_dict: {name!r} of parameter {i} does not exist")
            value = moments[name]
            if not isinstance(value, _weft.Tensor):
                value = _weft.from_dlpack(value)
            if value.shape != to.shape:
                raise ValueError(
                    f"load_state_dict: {name!r} of parameter {i} is {value.shape}, "
                    f"expected {to.shape}"
                )
            taken.append((to, value))
    for to, value in taken:
        to.copy_(value)
    for i, entry in state_dict["state"].items():
        # PyTorch's SGD does not count.
        self._set_steps(i, int(entry.get("step", 1)))
    for to, group in zip(own, groups):
        to.update({name: group[name] for name in to if name != "params" and name in group})


def _deepcopy(self, memo):
    """A copy with its own state, which updates copies of the parameters: those of `memo`, as in
    deepcopy((model, optimizer)), or new ones."""
    if type(self).__module__.partition(".")[0] != "weft":
        raise ValueError(
            f"deepcopy: the {type(self).__name__} is written in Python, expected a built-in "
            "optimizer; make another one and load_state_dict() into it"
        )
    return self._copy_for([copy.deepcopy(parameter, memo) for parameter in self._parameters])


Optimizer.__deepcopy__ = _deepcopy
Optimizer.param_groups = property(_param_groups)
Optimizer.state_dict = _state_dict
Optimizer.load_state_dict = _load_state_dict
