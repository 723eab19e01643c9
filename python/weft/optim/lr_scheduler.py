# SPDX-License-Identifier: Apache-2.0
"""Learning rates by step, with the names, arguments, values and state of torch.optim.lr_scheduler.

The state is in the optimizer's groups: most schedules multiply the rate that they find there, so
that several may run on one optimizer, and a rate that is set by hand stays. `last_epoch` of a
resumed run needs groups with an "initial_lr", which checkpoints of the optimizer contain.
"""

import math
from bisect import bisect_right
from collections import Counter

from weft import _arguments
from weft.optim._cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from weft.optim._scheduler import LRScheduler, a_number_each, a_value_each, check_numbers, fail
from weft.optim._scheduler import list_of_steps

__all__ = [
    "LambdaLR",
    "MultiplicativeLR",
    "StepLR",
    "MultiStepLR",
    "ConstantLR",
    "LinearLR",
    "ExponentialLR",
    "SequentialLR",
    "CosineAnnealingLR",
    "ChainedScheduler",
    "ReduceLROnPlateau",
    "CyclicLR",
    "CosineAnnealingWarmRestarts",
    "OneCycleLR",
    "PolynomialLR",
    "LRScheduler",
]


class _ByFunctions(LRScheduler):
    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        self.lr_lambdas = a_value_each("lr_lambda", optimizer, lr_lambda)
        for function in self.lr_lambdas:
            if not callable(function):
                fail("lr_lambda", function, "a function of the step")
        super().__init__(optimizer, last_epoch)


class LambdaLR(_ByFunctions):
    """`lr_lambda`, or that of each group, returns the factor of a step."""

    def get_lr(self):
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs)]


class MultiplicativeLR(_ByFunctions):
    """`lr_lambda`, or that of each group, returns the factor from the step before to a step."""

    def get_lr(self):
        rates = self._times(1.0)
        if self._is_initial:
            return rates
        return [rate * f(self.last_epoch) for f, rate in zip(self.lr_lambdas, rates)]


class _Factors(LRScheduler):
    """The rate is multiplied by `_change()`; `_whole()` is the product of all changes so far."""

    def get_lr(self):
        return self._times(self._change())

    def _get_closed_form_lr(self):
        return [base * self._whole() for base in self.base_lrs]


class StepLR(_Factors):
    """Multiplies the rate by `gamma` every `step_size` steps."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        check_numbers(step_size=step_size, above=0)
        check_numbers(gamma=gamma)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _change(self):
        return 1.0 if self.last_epoch == 0 or self.last_epoch % self.step_size else self.gamma

    def _whole(self):
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(_Factors):
    """Multiplies the rate by `gamma` at each step in `milestones`."""

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        check_numbers(gamma=gamma)
        self.milestones, self.gamma = Counter(list_of_steps("milestones", milestones)), gamma
        super().__init__(optimizer, last_epoch)

    def _change(self):
        return self.gamma ** self.milestones[self.last_epoch]

    def _whole(self):
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), self.last_epoch)


class ConstantLR(_Factors):
    """Multiplies the rate by `factor` for the first `total_iters` steps."""

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        check_numbers(factor=factor, total_iters=total_iters)
        if not 0 <= factor <= 1:
            fail("factor", factor, "a number from 0 to 1")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        # No factor brings back a rate that is 0.
        ends = self.factor == 0 and self.last_epoch == self.total_iters > 0
        return self._get_closed_form_lr() if ends else super().get_lr()

    def _change(self):
        if self.last_epoch == 0:
            return self.factor
        return 1.0 / self.factor if self.last_epoch == self.total_iters else 1.0

    def _whole(self):
        return self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor)


class LinearLR(_Factors):
    """The factor goes from `start_factor` to `end_factor` in a line over `total_iters` steps."""

    def __init__(
        self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1
    ):
        check_numbers(
            start_factor=start_factor, end_factor=end_factor, total_iters=total_iters
        )
        if not 0 < start_factor <= 1:
            fail("start_factor", start_factor, "a number above 0 and at most 1")
        if not 0 <= end_factor <= 1:
            fail("end_factor", end_factor, "a number from 0 to 1")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _change(self):
        if self.last_epoch == 0:
            return self.start_factor
        if self._is_initial or self.last_epoch > self.total_iters:
            return 1.0
        rise = self.end_factor - self.start_factor
        return 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)

    def _whole(self):
        rise = self.end_factor - self.start_factor
        return self.start_factor + rise * min(self.total_iters, self.last_epoch) / self.total_iters


class ExponentialLR(_Factors):
    """Multiplies the rate by `gamma` at each step."""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        check_numbers(gamma=gamma)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _change(self):
        return 1.0 if self._is_initial else self.gamma

    def _whole(self):
        return self.gamma**self.last_epoch


class PolynomialLR(_Factors):
    """The factor is (1 - step / total_iters) ** power, and 0 after `total_iters` steps."""

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        check_numbers(total_iters=total_iters, power=power)
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _left(self, step):
        return 1.0 - min(self.total_iters, step) / self.total_iters

    def _change(self):
        if self._is_initial or self.last_epoch > self.total_iters:
            return 1.0
        return (self._left(self.last_epoch) / self._left(self.last_epoch - 1)) ** self.power

    def _whole(self):
        return self._left(self.last_epoch) ** self.power


class CosineAnnealingLR(LRScheduler):
    """The rate follows half a cosine down to `eta_min` over `T_max` steps, then up again."""

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        check_numbers(T_max=T_max, above=0)
        check_numbers(eta_min=eta_min)
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _raised(self, step):
        return 1 + math.cos(math.pi * step / self.T_max)

    def get_lr(self):
        rates, low = self._times(1.0), self.eta_min
        if self._is_initial:
            return rates
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # The rate was eta_min, which no factor raises.
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [rate + (base - low) * rise for rate, base in zip(rates, self.base_lrs)]
        change = self._raised(self.last_epoch) / self._raised(self.last_epoch - 1)
        return [change * (rate - low) + low for rate in rates]

    def _get_closed_form_lr(self):
        low = self.eta_min
        return [low + (base - low) * self._raised(self.last_epoch) / 2 for base in self.base_lrs]


def _check_parts(kind, schedulers, optimizer):
    if not isinstance(schedulers, (list, tuple)):
        found = _arguments.described(schedulers)
        raise TypeError(f"lr_scheduler: schedulers of {kind} are {found}, expected a list of them")
    if not schedulers:
        fail(f"number of schedulers of {kind}", 0, "at least 1")
    for scheduler in schedulers:
        name = type(scheduler).__name__
        if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau):
            fail(f"a scheduler of {kind}", scheduler, "an LRScheduler whose step takes no metrics")
        if scheduler.optimizer is not optimizer:
            fail(f"the optimizer of {name} in {kind}", scheduler.optimizer, "that of the others")


class SequentialLR(LRScheduler):
    """Scheduler i is in use from milestone i - 1 on; each counts its steps from 0."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        _check_parts("SequentialLR", schedulers, optimizer)
        milestones = list_of_steps("milestones", milestones)
        if len(milestones) != len(schedulers) - 1:
            fail("number of milestones", len(milestones), len(schedulers) - 1)
        self._schedulers, self._milestones = list(schedulers), milestones
        self.last_epoch, self.optimizer = last_epoch + 1, optimizer
        # Each scheduler has set the rates; the first one starts again from those before.
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        _step_back(self)
        first = self._schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self):
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number > 0 and self._milestones[number - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _step_back(scheduler):
    """Takes back the first step of a scheduler, or of all in it."""
    for inner in getattr(scheduler, "_schedulers", ()):
        _step_back(inner)
    if not hasattr(scheduler, "_schedulers"):
        scheduler.last_epoch -= 1


class ChainedScheduler(LRScheduler):
    """All schedulers at each step, one after the other."""

    def __init__(self, schedulers, optimizer=None):
        if optimizer is None and schedulers and isinstance(schedulers, (list, tuple)):
            optimizer = getattr(schedulers[0], "optimizer", None)
        _check_parts("ChainedScheduler", schedulers, optimizer)
        self._schedulers, self.optimizer = list(schedulers), optimizer
        self._last_lr = self._times(1.0)

    def step(self):
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._times(1.0)


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rates by `factor` when `metrics` has not improved for `patience` steps."""

    def __init__(
        self,
        optimizer,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0.0,
        eps=1e-8,
    ):
        if mode not in ("min", "max"):
            fail("mode", mode, "'min' or 'max'")
        if threshold_mode not in ("rel", "abs"):
            fail("threshold_mode", threshold_mode, "'rel' or 'abs'")
        numbers = dict(factor=factor, patience=patience, threshold=threshold)
        check_numbers(**numbers, cooldown=cooldown, eps=eps)
        if factor >= 1.0:
            fail("factor", factor, "a number below 1")
        self.optimizer, self.factor = optimizer, factor
        self.min_lrs = a_number_each("min_lr", optimizer, min_lr)
        self.default_min_lr = None if isinstance(min_lr, (list, tuple)) else min_lr
        self.patience, self.cooldown, self.eps = patience, cooldown, eps
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.last_epoch = self.cooldown_counter = self.num_bad_epochs = 0
        self.best = self.mode_worse = math.inf if mode == "min" else -math.inf
        self._last_lr = self._times(1.0)

    def _improves(self, value):
        sign = -1 if self.mode == "min" else 1
        if self.threshold_mode == "rel":
            return sign * value > sign * self.best * (1.0 + sign * self.threshold)
        return sign * value > sign * self.best + self.threshold

    def step(self, metrics=None, epoch=None):
        """Counts a step whose loss, or what else is watched, is the number `metrics`."""
        check_numbers(metrics=metrics)
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self.num_bad_epochs += 1
        if self._improves(value):
            self.best, self.num_bad_epochs = value, 0
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = self._times(1.0)

    def _reduce(self):
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                fail("number of min_lrs", len(self.min_lrs), f"{len(groups)}, one for each group")
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, least in zip(groups, self.min_lrs):
            reduced = max(group["lr"] * self.factor, least)
            if group["lr"] - reduced > self.eps:
                group["lr"] = reduced
