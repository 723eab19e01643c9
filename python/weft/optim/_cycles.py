# SPDX-License-Identifier: Apache-2.0
"""Schedules that return to a rate: warm restarts and cycles."""

import math

from weft.optim._scheduler import LRScheduler, a_number_each, check_numbers, fail


class CosineAnnealingWarmRestarts(LRScheduler):
    """The rate follows half a cosine down to `eta_min` and starts again: after `T_0` steps, then
    each time after `T_mult` times as many."""

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                fail(name, value, "a whole number of at least 1")
        self.T_0 = self.T_i = T_0
        self.T_mult, self.eta_min, self.T_cur = T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        raised = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * raised for base in self.base_lrs]

    def step(self, epoch=None):
        """Counts a step, or goes to step `epoch`, which may be a fraction."""
        if epoch is None and self.last_epoch >= 0:
            epoch, self.T_cur = self.last_epoch + 1, self.T_cur + 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur % self.T_i, self.T_i * self.T_mult
        else:
            epoch = 0 if epoch is None else epoch
            if epoch < 0:
                fail("epoch", epoch, "at least 0")
            if self.T_mult > 1:
                cycle = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
                start = self.T_0 * (self.T_mult**cycle - 1) / (self.T_mult - 1)
                self.T_cur, self.T_i = epoch - start, self.T_0 * self.T_mult**cycle
            else:
                self.T_cur = epoch % self.T_0
        self.last_epoch = math.floor(epoch)
        self._set_rates(self.get_lr())


def _add_momentum(scheduler, optimizer, base_momentum, max_momentum, last_epoch):
    """Lets a schedule set the momentum, or beta1, too: from the greatest at step 0. Returns both
    ends by group."""
    group = optimizer.param_groups[0]
    if "momentum" not in group and "betas" not in group:
        fail("cycle_momentum", True, "False for an optimizer that has no momentum and no betas")
    scheduler.use_beta1 = "betas" in group
    bases = a_number_each("base_momentum", optimizer, base_momentum)
    peaks = a_number_each("max_momentum", optimizer, max_momentum)
    if last_epoch == -1:
        _set_momentum(scheduler, peaks)
        for group, base, peak in zip(optimizer.param_groups, bases, peaks):
            group.update(base_momentum=base, max_momentum=peak)
    return bases, peaks


def _set_momentum(scheduler, values):
    for group, value in zip(scheduler.optimizer.param_groups, values):
        if scheduler.use_beta1:
            group["betas"] = (value, group["betas"][1])
        else:
            group["momentum"] = value


class CyclicLR(LRScheduler):
    """Rises from base_lr to max_lr in step_size_up steps and falls back in step_size_down."""

    def __init__(
        self,
        optimizer,
        base_lr,
        max_lr,
        step_size_up=2000,
        step_size_down=None,
        mode="triangular",
        gamma=1.0,
        scale_fn=None,
        scale_mode="cycle",
        cycle_momentum=True,
        base_momentum=0.8,
        max_momentum=0.9,
        last_epoch=-1,
    ):
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            fail("mode", mode, "'triangular', 'triangular2' or 'exp_range', or a scale_fn")
        down = step_size_up if step_size_down is None else step_size_down
        check_numbers(step_size_up=step_size_up, above=0)
        check_numbers(step_size_down=down, gamma=gamma)
        self.optimizer = optimizer
        bases = a_number_each("base_lr", optimizer, base_lr)
        self.max_lrs = a_number_each("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, base in zip(optimizer.param_groups, bases):
                group["lr"] = base
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self._scale_fn_custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode
        if scale_fn is None:
            self.scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = _add_momentum(
                self, optimizer, base_momentum, max_momentum, last_epoch
            )
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def scale_fn(self, x):
        """The factor of the height of cycle, or step, x."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular2":
            return 1 / 2.0 ** (x - 1)
        return self.gamma**x if self.mode == "exp_range" else 1.0

    def get_lr(self):
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        ratio = self.step_ratio
        part = x / ratio if x <= ratio else (x - 1) / (ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)

        def height(low, high):
            return (high - low) * part * scale

        if self.cycle_momentum:
            ends = zip(self.base_momentums, self.max_momentums)
            _set_momentum(self, [high - height(low, high) for low, high in ends])
        return [low + height(low, high) for low, high in zip(self.base_lrs, self.max_lrs)]


class OneCycleLR(LRScheduler):
    """Rises from max_lr / div_factor to max_lr, then falls to the first over final_div_factor; with
    three_phase it returns to the first as it came. The momentum, or beta1, goes the other way."""

    def __init__(
        self,
        optimizer,
        max_lr,
        total_steps=None,
        epochs=None,
        steps_per_epoch=None,
        pct_start=0.3,
        anneal_strategy="cos",
        cycle_momentum=True,
        base_momentum=0.85,
        max_momentum=0.95,
        div_factor=25.0,
        final_div_factor=1e4,
        three_phase=False,
        last_epoch=-1,
    ):
        if total_steps is None and epochs is not None and steps_per_epoch is not None:
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps < 1:
            fail(
                "total_steps",
                total_steps,
                "a whole number of at least 1; or give epochs and steps_per_epoch",
            )
        if not 0 <= pct_start <= 1:
            fail("pct_start", pct_start, "a number from 0 to 1")
        if anneal_strategy not in ("cos", "linear"):
            fail("anneal_strategy", anneal_strategy, "'cos' or 'linear'")
        self.optimizer, self.total_steps = optimizer, total_steps
        names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
        rise = float(pct_start * total_steps) - 1
        phases = [(rise, "initial_lr", "max_lr", "max_momentum", "base_momentum")]
        if three_phase:
            fall = float(2 * pct_start * total_steps) - 2
            phases += [
                (fall, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
                (total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
            ]
        else:
            phases += [(total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
        self._schedule_phases = [dict(zip(names, phase)) for phase in phases]
        self._anneal_func_type = anneal_strategy
        peaks = a_number_each("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, peak in zip(optimizer.param_groups, peaks):
                first = peak / div_factor
                group.update(initial_lr=first, max_lr=peak, min_lr=first / final_div_factor)
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            _add_momentum(self, optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _between(self, start, end, part):
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start

    def get_lr(self):
        step, start = self.last_epoch, 0.0
        if step > self.total_steps:
            fail("step", step, f"one below {self.total_steps}, the number of steps")
        for phase in self._schedule_phases:
            end = phase["end_step"]
            if step <= end:
                break
            start = end if phase is not self._schedule_phases[-1] else start
        part = (step - start) / (end - start) if end != start else 1.0
        groups = self.optimizer.param_groups

        def now(what):
            ends = phase["start_" + what], phase["end_" + what]
            return [self._between(group[ends[0]], group[ends[1]], part) for group in groups]

        if self.cycle_momentum:
            _set_momentum(self, now("momentum"))
        return now("lr")
