# SPDX-License-Identifier: Apache-2.0
"""Writes optimizers.json: the parameters after steps of PyTorch's Adam and Muon (its iteration in
float32), of Lion by its paper's formula, averages of AveragedModel, scales of GradScaler, and the
rates of transformers.get_scheduler and OneCycleLR.

    python tests/reference/make_optimizers.py
"""

import json
import pathlib
import warnings

import torch
import transformers
from torch.optim import _muon
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

HERE = pathlib.Path(__file__).resolve().parent
#: Names and shapes of parameters: uneven for 3 and 4 ranks.
SHAPES = {"a": (7, 5), "b": (7, 5), "c": (7, 5), "wide": (3, 10), "tall": (9, 4), "one": (1, 6)}
STEPS = 4


def values(seed, shape):
    """The numbers of tests/python/optimizer_kinds_test.py."""
    count = torch.Size(shape).numel()
    at = torch.arange(count, dtype=torch.float64)
    return torch.sin(at * 1.7 + seed).reshape(shape).float()


def parameters():
    return [torch.nn.Parameter(values(i, shape)) for i, shape in enumerate(SHAPES.values())]


def gradients(step):
    return [values(100 * step + 10 * i, shape) * 2 for i, shape in enumerate(SHAPES.values())]


def rounded(tensors):
    return [[float(f"{x:.9g}") for x in tensor.flatten().tolist()] for tensor in tensors]


def after_steps(make):
    mine = parameters()
    optimizer = make(mine)
    for step in range(STEPS):
        for parameter, gradient in zip(mine, gradients(step)):
            parameter.grad = gradient
        optimizer.step()
    return rounded(mine)


class Lion(torch.optim.Optimizer):
    """Chen et al. (2023), algorithm 2."""

    def __init__(self, params, lr, betas, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = torch.sign(b1 * m + (1 - b1) * p.grad)
                p -= group["lr"] * (update + group["weight_decay"] * p)
                m.copy_(b2 * m + (1 - b2) * p.grad)


def zeropower_in_float32(grad, coefficients, steps, eps):
    """_zeropower_via_newtonschulz without its cast to bfloat16."""
    original = torch.bfloat16
    torch.bfloat16 = torch.float32
    try:
        return ITERATE(grad, coefficients, steps, eps)
    finally:
        torch.bfloat16 = original


ITERATE = _muon._zeropower_via_newtonschulz


def muon():
    _muon._zeropower_via_newtonschulz = zeropower_in_float32
    kinds = {
        "original": dict(),
        "match_rms_adamw": dict(adjust_lr_fn="match_rms_adamw", nesterov=False),
        "spectral_unclamped": dict(adjust_lr_fn="spectral_unclamped", momentum=0.8),
    }
    return {
        name: after_steps(lambda p, o=options: torch.optim.Muon(p, lr=0.02, weight_decay=0.2, **o))
        for name, options in kinds.items()
    }


def averages():
    module = torch.nn.ParameterList(parameters())
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for step in range(STEPS):
        for parameter, gradient in zip(module, gradients(step)):
            parameter.grad = gradient
        optimizer.step()
        average.update_parameters(module)
    return rounded(average.module)


def scales():
    """The scale after each of 12 steps, of which some are not finite."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    rows = []
    for step in range(12):
        optimizer.zero_grad()
        scaler.scale((weight * (float("inf") if step in (4, 5, 9) else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        rows.append([scaler.get_scale(), scaler.state_dict()["_growth_tracker"], weight[0].item()])
    return rows


SCHEDULES = [
    ("constant", {}, {}),
    ("constant_with_warmup", {}, {}),
    ("linear", {}, {}),
    ("cosine", {}, {}),
    ("cosine", {"num_cycles": 1.25}, {"cosine_cycles": 1.25}),
    ("cosine_with_min_lr", {"min_lr": 2e-3}, {"floor": 2e-3}),
    ("cosine_with_restarts", {"num_cycles": 3}, {"restarts": 3}),
    ("polynomial", {"lr_end": 1e-3, "power": 2.0}, {"floor": 1e-3, "power": 2.0}),
    ("inverse_sqrt", {}, {}),
    ("inverse_sqrt", {"timescale": 7}, {"timescale": 7}),
    ("warmup_stable_decay", {"num_decay_steps": 8}, {"decay": 8}),
    (
        "warmup_stable_decay",
        {"num_decay_steps": 6, "decay_type": "1-sqrt", "min_lr_ratio": 0.2},
        {"decay": 6, "decay_type": "1-sqrt", "floor": 4e-3},
    ),
    (
        "warmup_stable_decay",
        {"num_decay_steps": 6, "decay_type": "linear"},
        {"decay": 6, "decay_type": "linear"},
    ),
]
PEAK, WARMUP, TOTAL = 0.02, 5, 25


def rates():
    made = []
    for name, given, own in SCHEDULES:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=PEAK)
        warmup = None if name == "constant" else WARMUP
        scheduler = transformers.get_scheduler(name, optimizer, warmup, TOTAL, given)
        row = []
        for _ in range(TOTAL + 1):
            row.append(float(f"{scheduler.get_last_lr()[0]:.12g}"))
            optimizer.step()
            scheduler.step()
        made.append([name, 0 if name == "constant" else WARMUP, own, row])
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=PEAK, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK, TOTAL, pct_start=0.4)
    row = []
    for step in range(TOTAL):
        row.append(float(f"{scheduler.get_last_lr()[0]:.12g}"))
        optimizer.step()
        if step + 1 < TOTAL:
            scheduler.step()
    made.append(["one_cycle", 0, {"rising": 0.4}, row])
    return made


def main():
    warnings.simplefilter("ignore")
    adam = after_steps(
        lambda p: torch.optim.Adam(p, lr=0.03, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2)
    )
    lion = after_steps(lambda p: Lion(p, 0.03, (0.8, 0.95), 0.2))
    made = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "Adam": adam,
        "Lion": lion,
        "Muon": muon(),
        "Ema": averages(),
        "GradScaler": scales(),
        "schedules": rates(),
    }
    text = json.dumps(made, separators=(",", ":"))
    text = text.replace("]],", "]],\n").replace("],[", "],\n[")
    (HERE / "optimizers.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
