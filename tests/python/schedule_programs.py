# SPDX-License-Identifier: Apache-2.0
"""Programs of schedulers: random ones, and how one runs with weft or PyTorch."""

import copy
import random

STEPS = 50


class Wave:
    """A function of the step that holds something, which state dicts contain."""

    def __init__(self, height):
        self.height = height

    def __call__(self, step):
        return 1 + self.height * (step % 3)


FUNCTIONS = {
    "hyperbola": lambda step: 1 / (1 + step),
    "nearly": lambda step: 0.97 if step % 4 else 1.05,
    "wave": Wave(0.25),
}


def _simple(r):
    """A scheduler that steps by a closed form or a factor: its name and arguments."""
    gamma = r.choice([0.5, 0.9, 0.97])
    total = r.randint(1, 30)
    return r.choice(
        [
            ("LambdaLR", {"lr_lambda": r.choice(["hyperbola", ["nearly", "wave"]])}),
            ("MultiplicativeLR", {"lr_lambda": r.choice(["nearly", ["nearly", "hyperbola"]])}),
            ("StepLR", {"step_size": r.randint(1, 12), "gamma": gamma}),
            ("MultiStepLR", {"milestones": r.choices(range(1, 40), k=4), "gamma": gamma}),
            ("ConstantLR", {"factor": r.choice([0.25, 1 / 3, 1.0]), "total_iters": total}),
            (
                "LinearLR",
                {
                    "start_factor": r.choice([0.1, 1.0]),
                    "end_factor": r.choice([1.0, 0.3]),
                    "total_iters": total,
                },
            ),
            ("ExponentialLR", {"gamma": gamma}),
            ("PolynomialLR", {"total_iters": total, "power": r.choice([1.0, 2.0, 0.5])}),
            ("CosineAnnealingLR", {"T_max": r.randint(2, 25), "eta_min": r.choice([0.0, 0.01])}),
            (
                "CosineAnnealingWarmRestarts",
                {"T_0": r.randint(1, 9), "T_mult": r.randint(1, 3), "eta_min": r.choice([0, 1e-3])},
            ),
        ]
    )


def _cycle(r):
    if r.random() < 0.5:
        arguments = {
            "base_lr": r.choice([0.01, [0.01, 0.02]]),
            "max_lr": r.choice([0.1, [0.1, 0.3]]),
            "step_size_up": r.randint(1, 9),
            "mode": r.choice(["triangular", "triangular2", "exp_range"]),
            "gamma": 0.98,
            "cycle_momentum": r.random() < 0.7,
            "step_size_down": r.choice([None, 4]),
        }
        if r.random() < 0.3:
            arguments |= {"scale_fn": "hyperbola", "scale_mode": r.choice(["cycle", "iterations"])}
        return "CyclicLR", arguments
    arguments = {
        "max_lr": r.choice([0.1, [0.1, 0.3]]),
        "pct_start": r.choice([0.3, 0.45]),
        "anneal_strategy": r.choice(["cos", "linear"]),
        "cycle_momentum": r.random() < 0.7,
        "base_momentum": r.choice([0.85, [0.8, 0.7]]),
        "max_momentum": r.choice([0.95, [0.9, 0.92]]),
        "div_factor": r.choice([25.0, 4.0]),
        "final_div_factor": r.choice([1e4, 10.0]),
        "three_phase": r.random() < 0.5,
    }
    own = {"total_steps": 60} if r.random() < 0.5 else {"epochs": 6, "steps_per_epoch": 11}
    return "OneCycleLR", arguments | own


def _compound(r):
    if r.random() < 0.4:
        return "ChainedScheduler", {"schedulers": [_simple(r) for _ in range(r.randint(1, 3))]}
    parts = [_simple(r) for _ in range(r.randint(1, 3))]
    milestones = sorted(r.sample(range(1, 40), len(parts) - 1))
    return "SequentialLR", {"schedulers": parts, "milestones": milestones}


def _plateau(r):
    return "ReduceLROnPlateau", {
        "mode": r.choice(["min", "max"]),
        "factor": r.choice([0.1, 0.5]),
        "patience": r.randint(0, 3),
        "threshold": r.choice([1e-4, 0.1]),
        "threshold_mode": r.choice(["rel", "abs"]),
        "cooldown": r.randint(0, 3),
        "min_lr": r.choice([0, 1e-3, [1e-3, 0.05]]),
    }


def program(seed):
    """The schedulers of one optimizer, and what happens at which step."""
    r = random.Random(seed)
    kinds = [_simple, _simple, _compound, _cycle, _plateau]
    schedulers = [r.choice(kinds)(r)]
    if schedulers[0][0] not in ("OneCycleLR", "CyclicLR") and r.random() < 0.5:
        schedulers.append(r.choice([_simple, _compound, _plateau])(r))
    events = {}
    for step in range(STEPS):
        if r.random() < 0.06:
            events[step] = "resume"
        elif r.random() < 0.05:
            events[step] = "by hand"
        elif r.random() < 0.03 and schedulers[0][0] not in ("SequentialLR", "ChainedScheduler"):
            events[step] = "epoch"
    metrics = [round(r.uniform(-1, 4), 3) / (1 + step) for step in range(STEPS)]
    return {
        "optimizer": r.choice(["SGD", "AdamW"]),
        "schedulers": schedulers,
        "events": events,
        "metrics": metrics,
    }


def _function(given):
    return [_function(one) for one in given] if isinstance(given, list) else FUNCTIONS[given]


def build(namespace, optimizer, kind, arguments):
    """The scheduler that a program describes."""
    arguments = copy.deepcopy(arguments)
    for name in ("lr_lambda", "scale_fn"):
        if name in arguments:
            arguments[name] = copy.deepcopy(_function(arguments[name]))
    if kind in ("SequentialLR", "ChainedScheduler"):
        parts = [build(namespace, optimizer, *part) for part in arguments.pop("schedulers")]
        if kind == "ChainedScheduler":
            return namespace.ChainedScheduler(parts)
        return namespace.SequentialLR(optimizer, parts, **arguments)
    return getattr(namespace, kind)(optimizer, **arguments)


class Run:
    """A program under way: `make(kind)` returns an optimizer with two groups."""

    def __init__(self, wanted, namespace, make):
        self.wanted, self.namespace, self.make = wanted, namespace, make
        self._start()

    def _start(self):
        self.optimizer = self.make(self.wanted["optimizer"])
        self.schedulers = [
            build(self.namespace, self.optimizer, *one) for one in self.wanted["schedulers"]
        ]

    def state(self):
        return copy.deepcopy(
            [self.optimizer.state_dict()["param_groups"], [s.state_dict() for s in self.schedulers]]
        )

    def resume(self, state):
        """New objects, which go on from a state."""
        self._start()
        groups, states = state
        self.optimizer.load_state_dict({"state": {}, "param_groups": groups})
        for scheduler, own in zip(self.schedulers, states):
            scheduler.load_state_dict(own)

    def row(self):
        """The rates and momenta in use, and the rates that the schedulers report."""
        numbers = []
        for group in self.optimizer.param_groups:
            momentum = group["betas"][0] if "betas" in group else group["momentum"]
            numbers += [group["lr"], momentum]
        return numbers + [rate for s in self.schedulers for rate in s.get_last_lr()]

    def step(self, number):
        event = self.wanted["events"].get(number)
        if event == "resume":
            self.resume(self.state())
        elif event == "by hand":
            self.optimizer.param_groups[1]["lr"] *= 0.5
        for scheduler in self.schedulers:
            if isinstance(scheduler, self.namespace.ReduceLROnPlateau):
                scheduler.step(self.wanted["metrics"][number])
            elif event == "epoch" and scheduler is self.schedulers[0]:
                scheduler.step(number // 2)
            else:
                scheduler.step()
        return self.row()


def rows(wanted, namespace, make):
    run = Run(wanted, namespace, make)
    return [run.row(), *(run.step(number) for number in range(STEPS))]
