# SPDX-License-Identifier: Apache-2.0
"""Generators: streams of random numbers next to the rank's."""

import functools

from weft import _weft
from weft._words import described


class Generator:
    """A stream of random numbers. Functions with `generator=` draw from it, and leave the rank's
    stream as it is. Ranks that seed it alike draw alike."""

    def __init__(self, device="cpu"):
        self.device = device
        self.manual_seed(_SEED)

    def manual_seed(self, seed):
        """Begins the stream of that seed; returns the generator."""
        before = _weft.get_rng_state()
        _weft.manual_seed(seed)
        self._seed, self._state = seed, _weft.get_rng_state()
        _weft.set_rng_state(before)
        return self

    def initial_seed(self):
        """The seed of the stream."""
        return self._seed

    def get_state(self):
        """Where the stream is, for set_state."""
        return self._state

    def set_state(self, state):
        """Lets the stream go on from there; returns the generator."""
        self._state = state
        return self

    def draw(self, function):
        """What function() returns with this stream in place of the rank's."""
        before = _weft.get_rng_state()
        _weft.set_rng_state(self._state)
        try:
            return function()
        finally:
            self._state = _weft.get_rng_state()
            _weft.set_rng_state(before)


# PyTorch's seed of a new generator.
_SEED = 67280421310721


def draws(function):
    """The function with an argument `generator`."""

    @functools.wraps(function)
    def drawn(*given, generator=None, **named):
        if generator is None:
            return function(*given, **named)
        if not isinstance(generator, Generator):
            raise TypeError(
                f"{function.__name__}: generator is {described(generator)}, expected a Generator"
            )
        return generator.draw(lambda: function(*given, **named))

    return drawn
