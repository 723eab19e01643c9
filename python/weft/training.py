# SPDX-License-Identifier: Apache-2.0
"""Runs that go on in the program, and the program's runs that go on here."""

import struct

from weft import _weft


def _bits(number):
    """A double as the whole number of equal bits."""
    return struct.unpack("<q", struct.pack("<d", number))[0]


class LlamaRun:
    """A Llama's training run in the form in which `weft train --save` writes it: a run that is
    saved here goes on by `weft train --resume`, and the other way round.

    `step` counts the steps done. The run numbers must be the program's: the order of its data
    follows from them (seed, rows a step, tokens a row, tokens of the whole text). A checkpoint of a
    run with others is refused with ValueError.
    """

    def __init__(self, model, optimizer, *, seed, batch, seq, tokens):
        # Not self: what C++ keeps is beyond Python's collector of cycles.
        self._counter = counter = {"value": 0}
        config = model.config
        sizes = {
            name: int(getattr(config, name))
            for name in ("dim", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocabulary")
        }
        sizes |= {"max_sequence": config.max_sequence, "tied": int(config.tied)}
        sizes |= {"rope_theta": _bits(config.rope_theta), "norm_eps": _bits(config.norm_eps)}
        self.state = _weft.TrainingState()
        self.state.add("model", model)
        self.state.add("optimizer", optimizer)
        self.state.add_random("random")
        self.state.add_numbers("step", lambda: counter, counter.update)
        self._add_fixed("config", "model", sizes)
        self._add_fixed("run", "run", {"seed": seed, "batch": batch, "seq": seq, "tokens": tokens})

    @property
    def step(self):
        """Steps done."""
        return self._counter["value"]

    @step.setter
    def step(self, step):
        self._counter["value"] = step

    def _add_fixed(self, part, what, numbers):
        """A part that is saved, and must be the same when it is loaded."""

        def take(saved):
            for name, number in numbers.items():
                if saved[name] != number:
                    raise ValueError(
                        f"load: the checkpoint's {what} has {name} {saved[name]} "
                        f"but this one {number}"
                    )

        self.state.add_numbers(part, lambda: numbers, take)

    def save(self, saver):
        """Saves the run with a weft.CheckpointSaver; call it on all ranks."""
        return saver.save(self.step, self.state)

    def load(self, path, world):
        """Takes the run up from a checkpoint, or from the newest complete one of a directory that
        the first rank of `world` finds; call it on all its ranks."""
        _weft.load(_weft.newest_complete_checkpoint(path, world) or path, self.state)
