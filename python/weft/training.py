# SPDX-License-Identifier: Apache-2.0
"""Training runs that continue in the `weft` program, and runs of the program that continue here."""

import json
from collections import Counter

from weft import _arguments, _weft


def _like(before, value):
    """The value with the types that JSON lacks, as the object has them now."""
    if isinstance(before, Counter):
        return Counter({int(key): count for key, count in value.items()})
    if isinstance(before, dict) and isinstance(value, dict):
        return {key: _like(before.get(key), item) for key, item in value.items()}
    if isinstance(before, (list, tuple)) and isinstance(value, list):
        items = [*before, *[None] * (len(value) - len(before))]
        return type(before)(_like(old, item) for old, item in zip(items, value))
    return value


def _add_stateful(state, name, part):
    """TrainingState.add of an object with state_dict() and load_state_dict(): its state is saved as
    the bytes of a JSON text, eight a number."""
    if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
        raise TypeError(
            f"training state: part {name!r} is {_arguments.described(part)}, expected a module, an "
            "optimizer, a tensor or an object with state_dict() and load_state_dict()"
        )

    def refuse(value):
        raise TypeError(
            f"training state: part {name!r} has {_arguments.described(value)}, expected numbers, "
            "texts, lists and dicts"
        )

    def give():
        data = json.dumps(part.state_dict(), default=refuse).encode()
        words = [data[at : at + 8].ljust(8, b" ") for at in range(0, len(data), 8)]
        return {str(i): int.from_bytes(word, "little", signed=True) for i, word in enumerate(words)}

    def take(numbers):
        if not numbers:
            raise ValueError(f"load: part {name!r} is missing in the checkpoint, expected it")
        words = [numbers[str(i)].to_bytes(8, "little", signed=True) for i in range(len(numbers))]
        part.load_state_dict(_like(part.state_dict(), json.loads(b"".join(words))))

    give()
    state.add_numbers(name, give, take, takes_any=True)


class LlamaRun:
    """A training run in the format of `weft train --save`: a run that is saved here can
    continue with `weft train --resume`, and vice versa.

    `step` counts the steps done. The run numbers (seed, rows a step, tokens a row, tokens of the
    whole text) must equal the program's, because they determine the order of its data. A checkpoint
    of a run with other numbers is refused with ValueError.
    """

    def __init__(self, model, optimizer, *, seed, batch, seq, tokens):
        # Does not capture self: objects that C++ keeps are invisible to Python's cycle collector.
        self._counter = counter = {"value": 0}
        self.state = _weft.TrainingState()
        self.state.add("model", model)
        self.state.add("optimizer", optimizer)
        self.state.add_random("random")
        self.state.add_numbers("step", lambda: counter, counter.update)
        # Checkpoints written before there were other families lack the choices.
        self._add_fixed("config", "model", _weft._config_numbers(model.config))
        # The program saves more of a run: learning rate, data, ...; it compares what it finds.
        run = {"seed": seed, "batch": batch, "seq": seq, "tokens": tokens}
        self._add_fixed("run", "run", run)

    @property
    def step(self):
        """The number of steps done."""
        return self._counter["value"]

    @step.setter
    def step(self, step):
        self._counter["value"] = step

    def _add_fixed(self, part, what, numbers):
        """Adds a part that is saved, and must be equal when it is loaded."""

        def take(saved):
            compares = "config:0" in saved and not _weft._have_same_choices(saved, numbers)
            for name, number in numbers.items():
                if name.startswith("config:") and not compares:
                    continue
                if saved.get(name) != number:
                    raise ValueError(
                        f"load: {name} of the {what} is {number}, expected "
                        f"{saved.get(name)}, that of the checkpoint"
                    )

        self.state.add_numbers(part, lambda: numbers, take, takes_any=True)

    def save(self, saver):
        """Saves the run with a weft.CheckpointSaver; to be called on all ranks."""
        return saver.save(self.step, self.state)

    def load(self, path, world):
        """Continues a run from a checkpoint, or from the newest complete one of a directory, as
        found by the first rank of `world`; to be called on all its ranks."""
        _weft.load(_weft.newest_complete_checkpoint(path, world) or path, self.state)
