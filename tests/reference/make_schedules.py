# SPDX-License-Identifier: Apache-2.0
"""Writes schedules.json: the rates of programs of tests/python/schedule_programs.py in PyTorch.

    python tests/reference/make_schedules.py
"""

import json
import pathlib
import sys
import warnings

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
import schedule_programs  # noqa: E402

PROGRAMS = 24


def optimizer(kind):
    weights = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    groups = [{"params": [weights[0]]}, {"params": [weights[1]], "lr": 0.02}]
    options = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(torch.optim, kind)(groups, lr=0.1, **options)


def main():
    warnings.simplefilter("ignore")
    made = []
    for seed in range(PROGRAMS):
        program = schedule_programs.program(seed)
        rows = schedule_programs.rows(program, torch.optim.lr_scheduler, optimizer)
        made.append([[float(f"{number:.12g}") for number in row] for row in rows])
    text = json.dumps({"torch": torch.__version__, "rows": made}, separators=(",", ":"))
    (HERE / "schedules.json").write_text(text.replace("]],[[", "]],\n[[") + "\n")


if __name__ == "__main__":
    main()
