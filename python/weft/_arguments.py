# SPDX-License-Identifier: Apache-2.0
"""Arguments of functions written in Python: tensors, devices, and NumPy's and PyTorch's words for
them, which those of the compiled module take too."""

import functools
import inspect
import types

from weft import _weft


def described(value):
    """A value for an error: itself if it is short, else its type."""
    text = repr(value) if isinstance(value, (str, int, float, type(None))) else ""
    return text if 0 < len(text) <= 30 else f"a {type(value).__name__}"


def tensor_of(x):
    """The tensor itself, or the one that a Parameter computes with."""
    return x if isinstance(x, _weft.Tensor) else _weft.Tensor(x)


def on_device(x, device):
    """The same values on `device`; x itself when it is already there."""
    return x if x.device == device else _weft.on_device(x, device)


def check_device(what, x, device):
    """ValueError when `device` is not the device of x."""
    if device is not None and tensor_of(x).device != device:
        shown = device if isinstance(device, (str, _weft.Device)) else described(device)
        raise ValueError(
            f"{what}: device is {shown}, expected {tensor_of(x).device}, that of the tensor"
        )


def renamed(function, name):
    """The function with that name, which Python's errors show."""
    function.__name__ = function.__qualname__ = name
    return function


def _words_for(parameters, is_positional):
    """{word: the function's own} of the arguments that can only be given by position, or the
    others."""
    words = {}
    for group in _weft._WORDS:
        own = next((word for word in group if word in parameters), None)
        if own is None:
            continue
        if (parameters[own].kind is inspect.Parameter.POSITIONAL_ONLY) == is_positional:
            words |= {word: own for word in group if word == own or word not in parameters}
    return words


def accepting(function):
    """The function, taking both words; itself where it has none of them."""
    try:
        name, parameters = function.__name__, inspect.signature(function).parameters
    except ValueError:  # it passes its arguments on to a compiled function, which takes both
        return function
    words, first_words = _words_for(parameters, False), _words_for(parameters, True)
    own_names = list(parameters)
    if not words and not first_words:
        return function

    @functools.wraps(function)
    def call(*given, **named):
        for word in list(named):
            if word in first_words and own_names.index(first_words[word]) == len(given):
                given += (named.pop(word),)
        for word in list(named):
            own = words.get(word, word)
            if own != word and own in named:
                raise ValueError(
                    f"{name}: argument {own} is given as {word} too, expected one of these words"
                )
            named[own] = named.pop(word)
        return function(*given, **named)

    return call


def accept_words(namespace):
    """The public functions of `namespace` that are written in Python take both words."""
    for name, function in list(namespace.items()):
        if not name.startswith("_") and isinstance(function, types.FunctionType):
            namespace[name] = accepting(function)
