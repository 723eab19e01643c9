# SPDX-License-Identifier: Apache-2.0
"""Groups of parameters by their names, and schedules by theirs."""

import re

from weft import _weft
from weft.optim.lr_scheduler import LambdaLR


def no_decay(pattern="", vectors=True):
    """A predicate for `decays`: False for parameters in whose name the regular expression finds
    something and, with `vectors`, for those of fewer than 2 dims. An empty pattern finds
    nothing; an optimizer refuses another one that finds none of its parameters."""
    expression = re.compile(pattern) if pattern else None

    def decays(name, parameter):
        if vectors and len(parameter.shape) < 2:
            return False
        return expression is None or not expression.search(name)

    # The optimizer looks these up.
    decays.pattern, decays.vectors = pattern, vectors
    decays.finds = lambda name: expression is not None and expression.search(name) is not None
    return decays


def groups(model, options, **others):
    """Groups for an optimizer: one for each regular expression of the dict `options`, with the
    parameters whose names it finds, as the first to do so, and one with the others, whose options
    are the keywords. `optim.AdamW(optim.groups(model, {"embed": {"lr": 1e-4}}))`."""
    parts = {pattern: [] for pattern in options}
    rest = []
    expressions = [(re.compile(pattern), part) for pattern, part in parts.items()]
    for name, parameter in model.named_parameters():
        found = (part for expression, part in expressions if expression.search(name))
        next(found, rest).append((name, parameter))
    for pattern, part in parts.items():
        if not part:
            raise ValueError(
                f"groups: pattern {pattern!r} finds no parameter that no other pattern has, "
                "expected at least one"
            )
    made = [{"params": part, **options[pattern]} for pattern, part in parts.items()]
    return made + ([{"params": rest, **others}] if rest else [])


def get_scheduler(name, optimizer, num_warmup_steps=0, num_training_steps=1, **options):
    """The schedule of `schedule_names()`, with the rates of transformers.get_scheduler, for the
    rates that the groups have. `options` are those of `schedule_named`; `floor` is a part of the
    rates."""
    schedule = _weft.schedule_named(
        name, 1.0, num_warmup_steps, num_training_steps, **{"floor": 0.0, **options}
    )
    return LambdaLR(optimizer, schedule)
