# SPDX-License-Identifier: Apache-2.0
"""Learning rates by step, with the names, arguments and values of torch.optim.lr_scheduler.

Each is a function of the number of steps, so that a run continues from that number alone:
`scheduler.load_state_dict({"last_epoch": n})`.
"""

import math as _math

from weft import _weft


class LRScheduler:
    """Sets the learning rate of each group to `rate(group, step)`; `step()` counts from 0."""

    def __init__(self, optimizer, last_epoch=-1, **numbers):
        """The numbers become attributes."""
        if not isinstance(optimizer, _weft.Optimizer):
            kind = type(optimizer).__name__
            raise TypeError(f"lr_scheduler: optimizer is a {kind}, expected an Optimizer")
        vars(self).update(numbers)
        self.optimizer = optimizer
        self.base_lrs = [group["lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def rate(self, group, step):
        """The learning rate of a group at a step; by default `factor(step)` times its first."""
        return self.base_lrs[group] * self.factor(step)

    def factor(self, step):
        raise NotImplementedError(
            f"lr_scheduler: {type(self).__name__} has no factor, expected a method rate or factor"
        )

    def step(self):
        """Counts a step; call it after `optimizer.step()`."""
        self.last_epoch += 1
        self._set_rates()

    def _set_rates(self):
        for number, group in enumerate(self.optimizer.param_groups):
            group["lr"] = float(self.rate(number, self.last_epoch))

    def get_last_lr(self):
        """The learning rates in use, by group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self):
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict):
        self.last_epoch = state_dict["last_epoch"]
        self.base_lrs = list(state_dict.get("base_lrs", self.base_lrs))
        self._set_rates()


class LambdaLR(LRScheduler):
    """`lr_lambda`, or that of each group, gives the factor of a step."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(
                f"lr_scheduler: number of functions is {len(self.lr_lambdas)}, expected {groups}"
            )
        super().__init__(optimizer, last_epoch)

    def rate(self, group, step):
        return self.base_lrs[group] * self.lr_lambdas[group](step)


class StepLR(LRScheduler):
    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        super().__init__(optimizer, last_epoch, step_size=step_size, gamma=gamma)

    def factor(self, step):
        return self.gamma ** (step // self.step_size)


class MultiStepLR(LRScheduler):
    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        super().__init__(optimizer, last_epoch, milestones=sorted(milestones), gamma=gamma)

    def factor(self, step):
        return self.gamma ** sum(milestone <= step for milestone in self.milestones)


class ConstantLR(LRScheduler):
    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        super().__init__(optimizer, last_epoch, first=factor, total_iters=total_iters)

    def factor(self, step):
        return self.first if step < self.total_iters else 1.0


class LinearLR(LRScheduler):
    def __init__(
        self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1
    ):
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def factor(self, step):
        part = min(step, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * part


class ExponentialLR(LRScheduler):
    def __init__(self, optimizer, gamma, last_epoch=-1):
        super().__init__(optimizer, last_epoch, gamma=gamma)

    def factor(self, step):
        return self.gamma**step


class PolynomialLR(LRScheduler):
    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        super().__init__(optimizer, last_epoch, total_iters=total_iters, power=power)

    def factor(self, step):
        return (1 - min(step, self.total_iters) / self.total_iters) ** self.power


def _cosine(low, high, part):
    return low + (high - low) * (1 + _math.cos(_math.pi * part)) / 2


class CosineAnnealingLR(LRScheduler):
    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        super().__init__(optimizer, last_epoch, T_max=T_max, eta_min=eta_min)

    def rate(self, group, step):
        return _cosine(self.eta_min, self.base_lrs[group], step / self.T_max)


class CosineAnnealingWarmRestarts(LRScheduler):
    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        super().__init__(optimizer, last_epoch, T_0=T_0, T_mult=T_mult, eta_min=eta_min)

    def rate(self, group, step):
        length = self.T_0
        while step >= length:
            step, length = step - length, length * self.T_mult
        return _cosine(self.eta_min, self.base_lrs[group], step / length)


class OneCycleLR(LRScheduler):
    """Rises from max_lr / div_factor to max_lr, then falls to the first over final_div_factor."""

    def __init__(
        self,
        optimizer,
        max_lr,
        total_steps,
        pct_start=0.3,
        anneal_strategy="cos",
        div_factor=25.0,
        final_div_factor=1e4,
        last_epoch=-1,
    ):
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"lr_scheduler: anneal_strategy is {anneal_strategy!r}, expected 'cos' or 'linear'"
            )
        groups = len(optimizer.param_groups)
        self.max_lrs = max_lr if isinstance(max_lr, (list, tuple)) else [max_lr] * groups
        self.total_steps, self.strategy = total_steps, anneal_strategy
        self.peak = pct_start * total_steps - 1
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        super().__init__(optimizer, last_epoch)

    def rate(self, group, step):
        if step >= self.total_steps:
            raise ValueError(f"lr_scheduler: step is {step}, expected one below {self.total_steps}")
        high = self.max_lrs[group]
        first = high / self.div_factor
        if step <= self.peak:
            start, end, part = first, high, step / self.peak
        else:
            start, end = high, first / self.final_div_factor
            part = (step - self.peak) / (self.total_steps - 1 - self.peak)
        return _cosine(end, start, part) if self.strategy == "cos" else start + (end - start) * part


class SequentialLR(LRScheduler):
    """Scheduler i is in use from milestone i - 1 on; each counts its steps from 0."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"lr_scheduler: number of milestones is {len(milestones)}, expected "
                f"{len(schedulers) - 1}"
            )
        self.schedulers, self.milestones = schedulers, milestones
        # The schedulers have set the rates already; those before them are the bases.
        for group, rate in zip(optimizer.param_groups, schedulers[0].base_lrs):
            group["lr"] = rate
        for scheduler in schedulers:
            scheduler.base_lrs = list(schedulers[0].base_lrs)
        super().__init__(optimizer, last_epoch)

    def rate(self, group, step):
        number = sum(milestone <= step for milestone in self.milestones)
        start = self.milestones[number - 1] if number else 0
        return self.schedulers[number].rate(group, step - start)


class ReduceLROnPlateau:
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
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"lr_scheduler: mode is {mode!r}, expected 'min' or 'max'; threshold_mode is "
                f"{threshold_mode!r}, expected 'rel' or 'abs'"
            )
        self.optimizer = optimizer
        self.mode, self.factor, self.patience = mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.min_lr, self.eps = cooldown, min_lr, eps
        self.best = _math.inf if mode == "min" else -_math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def _improves(self, value):
        sign = 1 if self.mode == "min" else -1
        margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1)
        return _math.isinf(self.best) or sign * value < sign * self.best - margin

    def step(self, metrics):
        value = float(metrics)
        self.last_epoch += 1
        if self._improves(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            for group in self.optimizer.param_groups:
                rate = max(group["lr"] * self.factor, self.min_lr)
                if group["lr"] - rate > self.eps:
                    group["lr"] = rate

    get_last_lr = LRScheduler.get_last_lr

    def state_dict(self):
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state_dict):
        vars(self).update(state_dict)
