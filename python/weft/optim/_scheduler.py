# SPDX-License-Identifier: Apache-2.0
"""Parts that the schedules of lr_scheduler share."""

import functools
import inspect
from collections.abc import Iterable

from weft import _arguments, _weft


def fail(what, value, expected):
    raise ValueError(f"lr_scheduler: {what} is {_arguments.described(value)}, expected {expected}")


def check_numbers(above=None, **values):
    """Raises for values that are no numbers, or not above `above`."""
    expected = "a number" if above is None else f"a number above {above}"
    for name, value in values.items():
        if not hasattr(value, "__float__") and not hasattr(type(value), "__index__"):
            found = _arguments.described(value)
            raise TypeError(f"lr_scheduler: {name} is {found}, expected {expected}")
        if above is not None and not value > above:
            fail(name, value, expected)


def list_of_steps(name, given):
    """The list of steps, which are numbers."""
    if not isinstance(given, Iterable) or isinstance(given, str):
        found = _arguments.described(given)
        raise TypeError(f"lr_scheduler: {name} is {found}, expected a list of steps")
    given = list(given)
    for i, step in enumerate(given):
        check_numbers(**{f"item {i} of {name}": step})
    return given


def a_number_each(name, optimizer, given):
    """A list with a number for each group of the optimizer."""
    values = a_value_each(name, optimizer, given)
    for value in values:
        check_numbers(**{name: value})
    return values


def a_value_each(name, optimizer, given):
    """A list with a value for each group of the optimizer."""
    groups = len(optimizer.param_groups)
    if not isinstance(given, (list, tuple)):
        return [given] * groups
    if len(given) != groups:
        fail(f"number of values of {name}", len(given), f"{groups}, one for each group")
    return list(given)


def _plain(value):
    """The form of an attribute in a state dict: of functions only their attributes."""
    if isinstance(value, LRScheduler):
        return value.state_dict()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if callable(value):
        return None if inspect.isroutine(value) else dict(vars(value))
    return value


def _telling(init):
    """The __init__, with a sentence for arguments that it does not take."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def call(self, *given, **named):
        kind = type(self).__name__
        try:
            arguments = signature.bind(self, *given, **named).arguments
        except TypeError as error:
            names = ", ".join(str(value) for value in list(signature.parameters.values())[1:])
            raise TypeError(f"{kind}: {error}, expected ({names})") from None
        optimizer = arguments.get("optimizer")
        is_left_out = optimizer is None and kind == "ChainedScheduler"
        if "optimizer" in arguments and not (is_left_out or isinstance(optimizer, _weft.Optimizer)):
            found = type(optimizer).__name__
            raise TypeError(f"lr_scheduler: optimizer is a {found}, expected an Optimizer")
        init(self, *given, **named)

    return call


class LRScheduler:
    """Sets the learning rates of an optimizer's groups. `step()` counts a step, after
    `optimizer.step()`; get_lr(), which classes derived from this one define, returns the rates of
    step `last_epoch`."""

    _is_initial = False

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _telling(cls.__init__)

    @_telling
    def __init__(self, optimizer, last_epoch=-1):
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueError(
                    f"lr_scheduler: 'initial_lr' of param_groups[{number}] is missing, expected "
                    f"the rate of step 0 to resume with last_epoch={last_epoch}; load the "
                    "optimizer's state first"
                )
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self):
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self):
        """The rates of step `last_epoch`, by group, from those in use."""
        kind = type(self).__name__
        raise NotImplementedError(f"lr_scheduler: {kind} has no get_lr, expected a list of rates")

    def step(self, epoch=None):
        """Counts a step, or goes to step `epoch`: by the rates of step 0 where the class has a
        closed form."""
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        before = self.last_epoch
        self.last_epoch = before + 1 if epoch is None else epoch
        closed = None if epoch is None else getattr(self, "_get_closed_form_lr", None)
        try:
            self._set_rates((closed or self.get_lr)())
        except Exception:
            self.last_epoch = before
            raise

    def _set_rates(self, rates):
        groups = self.optimizer.param_groups
        if len(rates) != len(groups):
            fail("number of rates", len(rates), f"{len(groups)}, one for each group")
        for group, rate in zip(groups, rates):
            group["lr"] = float(rate)
        self._last_lr = self._times(1.0)

    def _times(self, factor):
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def get_last_lr(self):
        """The rates that the last step set, by group."""
        return self._last_lr

    def state_dict(self):
        """Everything but the optimizer, as PyTorch's; of functions, what their objects hold."""
        return {name: _plain(value) for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state_dict):
        """Takes what `state_dict()` returned, or that of the same scheduler of PyTorch; the rates
        in use are part of the optimizer's state."""
        if not isinstance(state_dict, dict):
            found = _arguments.described(state_dict)
            raise TypeError(f"load_state_dict: the state dict is {found}, expected a dict")
        for name, value in state_dict.items():
            own = vars(self).get(name)
            if name == "_schedulers":
                for scheduler, state in zip(own, value):
                    scheduler.load_state_dict(state)
            elif name == "lr_lambdas" or name == "_scale_fn_custom":
                functions = zip(own, value) if name == "lr_lambdas" else [(own, value)]
                for function, state in functions:
                    vars(function).update(state) if state is not None else None
            else:
                setattr(self, name, value)
