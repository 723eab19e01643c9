# SPDX-License-Identifier: Apache-2.0
"""Optimizers and learning rates."""

import copy
from collections.abc import Mapping, MutableMapping

from weft import _arguments, _array_api, _weft
from weft._weft import (
    SGD,
    Adam,
    AdamW,
    AdamW8bit,
    Ema,
    Lamb,
    Lion,
    LossScaler,
    Muon,
    NonFinitePolicy,
    Optimizer,
    Schedule,
    WarmupCosine,
    newton_schulz,
    schedule_named,
    schedule_names,
)
from weft.optim import lr_scheduler
from weft.optim._groups import get_scheduler, groups, no_decay
from weft.optim._scaler import GradScaler

__all__ = [
    "Adam",
    "AdamW",
    "AdamW8bit",
    "Ema",
    "GradScaler",
    "Lamb",
    "Lion",
    "LossScaler",
    "Muon",
    "NonFinitePolicy",
    "Optimizer",
    "SGD",
    "Schedule",
    "WarmupCosine",
    "get_scheduler",
    "groups",
    "lr_scheduler",
    "newton_schulz",
    "no_decay",
    "schedule_named",
    "schedule_names",
]

_TORCH_MOMENTS = {"exp_avg": "m", "exp_avg_sq": "v"}
#: Options of PyTorch's groups that change what a step computes, with the values that weft has.
_TORCH_OPTIONS = {"amsgrad": False, "maximize": False, "dampening": 0}


class _Group(MutableMapping):
    """A group of an optimizer's parameters: "params", the numbers and what schedules note there,
    which can be set."""

    def __init__(self, optimizer, index):
        self._optimizer = optimizer
        self._index = index

    def _numbers(self):
        numbers = self._optimizer._group_numbers(self._index)
        if "beta1" in numbers:
            betas = numbers.pop("beta1"), numbers.pop("beta2")
            numbers = {"lr": numbers.pop("lr"), "betas": betas, **numbers}
        return numbers

    def __getitem__(self, name):
        if name == "params":
            return self._optimizer._group_parameters(self._index)
        return self._numbers()[name]

    def __setitem__(self, name, value):
        numbers = self._numbers()
        if name not in numbers and name not in _weft.Optimizer._note_names:
            raise ValueError(
                f"param_groups: {name!r} cannot be set, expected one of "
                f"{', '.join(map(repr, numbers))}"
            )
        numbers = {name: value}
        if name == "betas":
            numbers = {"beta1": value[0], "beta2": value[1]}
        for key, number in numbers.items():
            self._optimizer._set(self._index, key, number)

    def __delitem__(self, name):
        raise ValueError(f"param_groups: {name!r} is deleted, expected to stay")

    def __iter__(self):
        return iter(("params", *self._numbers()))

    def __len__(self):
        return 1 + len(self._numbers())

    def __repr__(self):
        return repr(dict(self))


def _param_groups(self):
    """The groups of parameters, as PyTorch's: mappings whose numbers can be set."""
    return [_Group(self, index) for index in range(self._group_count)]


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


def _check_groups(self, groups):
    counts = [len(group["params"]) for group in groups]
    own_counts = [len(group["params"]) for group in self.param_groups]
    if counts != own_counts:
        raise ValueError(
            f"load_state_dict: the groups have {counts} parameters, expected {own_counts}"
        )
    for group in groups:
        options = dict(_TORCH_OPTIONS)
        # PyTorch's Adam adds the decay to the gradients, unless told not to.
        if isinstance(self, (Adam, AdamW)) and group.get("weight_decay", 0) != 0:
            options["decoupled_weight_decay"] = isinstance(self, AdamW)
        for name, own in options.items():
            if group.get(name, own) != own:
                raise ValueError(
                    f"load_state_dict: {name} is {group[name]}, expected {own} for "
                    f"{type(self).__name__}"
                )


def _taken(self, i, entry):
    """(tensor of parameter i's state, its new elements): those that the entry lacks are 0."""
    names = {**_TORCH_MOMENTS, "momentum_buffer": "m" if isinstance(self, Muon) else "velocity"}
    moments = {names.get(key, key): value for key, value in entry.items()}
    moments = {key: value for key, value in moments.items() if value is not None and key != "step"}
    for name in moments.keys() - set(self.moments):
        raise ValueError(
            f"load_state_dict: {name!r} of parameter {i} is unknown, expected "
            f"{', '.join(map(repr, self.moments)) or 'no moments'} of {type(self).__name__}"
        )
    for name, to in zip(self.moments, self.state(i)):
        if name not in moments:
            # PyTorch's SGD has no velocity before the first step.
            if moments or entry.get("step", 0):
                raise ValueError(f"load_state_dict: {name!r} of parameter {i} does not exist")
            yield to, _weft.zeros_like(to)
            continue
        value = moments[name]
        if not isinstance(value, _weft.Tensor):
            value = _array_api.asarray(value.detach() if hasattr(value, "detach") else value)
        if value.shape != to.shape:
            raise ValueError(
                f"load_state_dict: {name!r} of parameter {i} is {value.shape}, "
                f"expected {to.shape}"
            )
        yield to, value.astype(to.dtype)


def _parts_of(state_dict):
    if not isinstance(state_dict, Mapping):
        found = _arguments.described(state_dict)
        raise TypeError(
            f"load_state_dict: the state dict is {found}, expected a dict with 'state' and "
            "'param_groups'"
        )
    for part in ("param_groups", "state"):
        if part not in state_dict:
            raise ValueError(
                f"load_state_dict: {part!r} is missing, expected a dict with 'state' and "
                "'param_groups'"
            )
    return state_dict["param_groups"], state_dict["state"]


def _order(self, groups):
    """The keys of the parameters' states in this optimizer's order: by their names if the dict has
    names, as that of torch.distributed.checkpoint and those with "param_names" do."""
    order, start = [], 0
    has_names = not all(name.isdigit() for name in self.names)
    for number, group in enumerate(groups):
        keys = list(group["params"])
        own = self.names[start : start + len(keys)]
        start += len(keys)
        names = list(group.get("param_names", keys)) if has_names else keys
        if not any(isinstance(name, str) for name in names):
            order += keys
            continue
        by_name = dict(zip(names, keys))
        for name in own:
            if name not in by_name or len(by_name) != len(names) or len(names) != len(keys):
                raise ValueError(
                    f"load_state_dict: names of group {number} are {_shown(names)}, expected "
                    f"{_shown(own)}, in any order"
                )
            order.append(by_name[name])
    return order


def _shown(names):
    shown = ", ".join(map(repr, names[:4]))
    return f"{shown}, ..." if len(names) > 4 else shown


def _load_state_dict(self, state_dict):
    """Takes what `state_dict()` returned, or that of the same optimizer of PyTorch: whole tensors,
    each cut as the parameter is. Parameters are matched by the order of the groups, or by their
    names if the dict has names."""
    groups, entries = _parts_of(state_dict)
    _check_groups(self, groups)
    order = _order(self, groups)
    for number in entries.keys() - set(order):
        raise ValueError(f"load_state_dict: parameter {number!r} is in no group, expected in one")
    given = [entries.get(number, {}) for number in order]
    before = [dict(group) for group in self.param_groups]
    try:
        _set_numbers(self, groups)
        pairs = [pair for i, entry in enumerate(given) for pair in _taken(self, i, entry)]
    except Exception:
        _set_numbers(self, before)
        raise
    _weft.Optimizer._take_state(pairs)
    for i, entry in enumerate(given):
        # PyTorch's SGD does not count.
        self._set_steps(i, int(entry.get("step", bool(entry))))


def _set_numbers(self, groups):
    for to, group in zip(self.param_groups, groups):
        known = {*to, *_weft.Optimizer._note_names} - {"params"}
        to.update({name: group[name] for name in group if name in known})


def _deepcopy(self, memo):
    """A copy with its own state, which updates copies of the parameters: those of `memo`, as in
    deepcopy((model, optimizer)), or new ones."""
    if type(self).__module__.partition(".")[0] != "weft":
        raise ValueError(
            f"deepcopy: the {type(self).__name__} is written in Python, expected a built-in "
            "optimizer; make another one and load_state_dict() into it"
        )
    return self._copy_for([copy.deepcopy(parameter, memo) for parameter in self._parameters])


def _repr(self):
    """Prints like PyTorch's: the options of each group, and its number of parameters."""
    lines = [f"{type(self).__name__} ("]
    for number, group in enumerate(self.param_groups):
        elements = sum(parameter.numel() for parameter in group["params"])
        lines.append(f"Parameter Group {number}")
        lines += [f"    {name}: {group[name]}" for name in sorted(set(group) - {"params"})]
        lines.append(f"    parameters: {len(group['params'])} of {elements} elements")
    return "\n".join([*lines, ")"])


Optimizer.__deepcopy__ = _deepcopy
Optimizer.__repr__ = _repr
Optimizer.param_groups = property(_param_groups)
Optimizer.state_dict = _state_dict
Optimizer.load_state_dict = _load_state_dict
