# SPDX-License-Identifier: Apache-2.0
"""Arguments of functions: tensors, devices, and NumPy's and PyTorch's words for them in functions
written in Python, which those of the compiled module take too; and sentences about arguments that a
compiled function does not take, from its signature."""

import functools
import inspect
import operator
import types
from typing import NamedTuple

from weft import _weft


def described(value):
    """A value for an error: itself if it is short, else its type."""
    text = repr(value) if isinstance(value, (str, int, float, type(None))) else ""
    if 0 < len(text.encode(errors="replace")) <= 30:
        return text
    kind = type(value)
    name = kind.__name__
    if hasattr(kind, "__dlpack__") and not isinstance(value, _weft.Tensor):
        name = f"{kind.__module__.partition('.')[0]}.{name}"
    return ("an " if name[:1].lower() in "aeiou" else "a ") + name


def conversion_of(value, kind):
    """A hint at the conversion of a value to a Tensor, where that is expected."""
    if "Tensor" not in _parts(kind, " | "):
        return ""
    if hasattr(value, "__dlpack__"):
        return "; convert it by weft.from_dlpack"
    return "; convert it by weft.tensor" if isinstance(value, (list, tuple)) else ""


def tensor_of(x):
    """The tensor itself, or the one that a Parameter computes with."""
    return x if isinstance(x, _weft.Tensor) else _weft.Tensor(x)


def on_device(x, device):
    """The same values on `device`; x itself when it is already there."""
    return x if x.device == device else _weft.on_device(x, device)


def renamed(function, name):
    """The function with that name, as "Class.name" for a method, which Python's errors show."""
    function.__name__, function.__qualname__ = name.rpartition(".")[2], name
    return function


def telling(function):
    """The function, with a sentence for arguments that it does not take."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*given, **named):
        try:
            signature.bind(*given, **named)
        except TypeError as error:
            names = ", ".join(signature.parameters)
            raise TypeError(f"{function.__name__}: {error}, expected ({names})") from None
        return function(*given, **named)

    return call


def accepting(function):
    """The function, taking both words; itself where it has none of them."""
    try:
        name, parameters = function.__name__, inspect.signature(function).parameters
    except ValueError:  # it passes its arguments on to a compiled function, which takes both
        return function
    words = {}
    for group in _weft._WORDS:
        own = next((word for word in group if word in parameters), None)
        words |= {word: own for word in group if own and word not in parameters}
    if not words:
        return function

    @functools.wraps(function)
    def call(*given, **named):
        for word in words.keys() & named.keys():
            own = words[word]
            if own in named:
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


_MISSING = object()


def _parts(text, separator):
    """The parts of a text between separators that are outside of brackets and quotes."""
    parts, start, depth, is_quoted = [], 0, 0, False
    for i, c in enumerate(text):
        is_quoted ^= c == "'"
        if is_quoted:
            continue
        depth += (c in "([{") - (c in ")]}")
        if depth == 0 and text.startswith(separator, i):
            parts.append(text[start:i])
            start = i + len(separator)
    return [*parts, text[start:]] if start < len(text) else parts


class _Argument(NamedTuple):
    name: str
    kind: str  # "int | None"
    value: str  # empty for an argument that must be given
    by_name_only: bool


class _Signature:
    """The arguments in a line "name(x: Tensor, axis: int = -1) -> Tensor" of a docstring."""

    def __init__(self, line):
        text = line.rpartition(") -> ")[0].partition("(")[2].replace("collections.abc.", "")
        parts = _parts(text, ", ")
        self.self = int(text.startswith("self: "))
        self.text = f"({', '.join(parts[self.self:])})"
        self.arguments, by_name_only = [], False
        self.takes_any = self.takes_any_name = False
        for part in parts:
            if part.startswith("*") and not part.startswith("**"):
                by_name_only = True
            if part in ("*", "/"):
                continue
            if part.startswith("*"):
                self.takes_any = True
                self.takes_any_name = self.takes_any_name or part.startswith("**")
            else:
                name, _, typed = part.partition(": ")
                kind, _, value = typed.partition(" = ")
                self.arguments.append(_Argument(name, kind, value, by_name_only))


def _signatures(docstring):
    """The signatures at the beginning of a docstring: one, or one for each overload."""
    lines = docstring.split("\n")
    if "\nOverloaded function." not in docstring:
        lines = lines[:1]
    else:
        lines = [line for line in lines if line.partition(". ")[0].isdigit()]
    return [_Signature(line) for line in lines if "(" in line and ") -> " in line]


def _is_small_int(value):
    try:
        return -(2**63) <= operator.index(value) < 2**63
    except Exception:
        return False


# Checks that a value is of a type as it is written in a signature.
_CHECKS = {
    "None": lambda value: value is None,
    "int": _is_small_int,
    "float": lambda value: hasattr(value, "__float__") or hasattr(type(value), "__index__"),
    "bool": lambda value: value is None or hasattr(type(value), "__bool__"),
    "str": lambda value: isinstance(value, str),
    "bytes": lambda value: isinstance(value, bytes),
    "Callable": callable,
    "dict": lambda value: isinstance(value, dict),
}


def _fits(value, kind):
    alternatives = _parts(kind, " | ")
    if len(alternatives) > 1:
        return any(_fits(value, one) for one in alternatives)
    if kind in _CHECKS:
        return _CHECKS[kind](value)
    if kind.endswith("]"):
        name, _, inner = kind[:-1].partition("[")
        return _container_fits(value, name, _parts(inner, ", "))
    bound = vars(_weft).get(kind)
    return not isinstance(bound, type) or isinstance(value, bound)


def _container_fits(value, name, kinds):
    if name in ("Mapping", "dict"):
        return isinstance(value, dict) and all(
            _fits(key, kinds[0]) and _fits(item, kinds[-1]) for key, item in value.items()
        )
    is_sequence = all(hasattr(type(value), name) for name in ("__getitem__", "__len__"))
    if not is_sequence or isinstance(value, (str, dict, types.MappingProxyType)):
        return False
    if name != "tuple" or kinds[-1] == "...":
        return kinds[0] == "..." or all(_fits(item, kinds[0]) for item in value)
    return len(value) == len(kinds) and all(map(_fits, value, kinds))


class _Given:
    """The arguments of a call: values by position, then those of `names`."""

    def __init__(self, values, names):
        self.positional = len(values) - len(names)
        self.values, self.named = values, dict(zip(names, values[self.positional :]))

    def value_of(self, signature, i):
        argument = signature.arguments[i]
        if not argument.by_name_only and i < self.positional:
            return self.values[i]
        return self.named.get(argument.name, _MISSING)

    def in_words(self, self_given):
        shown = [described(value) for value in self.values[self_given : self.positional]]
        shown += [f"{name}={described(value)}" for name, value in self.named.items()]
        return "(" + ", ".join(shown) + ")"


def _wrong_arguments(signature, given, quoted):
    """The error in the number and the names of the arguments; "" for none."""
    arguments = signature.arguments
    names = [argument.name for argument in arguments]
    if signature.takes_any:
        unknown = [] if signature.takes_any_name else [n for n in given.named if n not in names]
        return f"argument {quoted(unknown[0])} does not exist" if unknown else ""
    places = sum(not argument.by_name_only for argument in arguments)
    if given.positional > places:
        return (
            f"number of arguments by position is {given.positional - signature.self}, "
            f"expected at most {places - signature.self}"
        )
    for name in given.named:
        if name not in names:
            return f"argument {quoted(name)} does not exist"
        if names.index(name) < given.positional:
            return f"{name} is given by position and by name, expected once"
    for i, argument in enumerate(arguments):
        if not argument.value and given.value_of(signature, i) is _MISSING:
            return f"{argument.name} is missing, expected {argument.kind}"
    return ""


def _wrong_value(signature, given):
    """The error of the first value that does not fit; "" for none."""
    for i, argument in enumerate(signature.arguments):
        value = given.value_of(signature, i)
        if value is _MISSING or _fits(value, argument.kind):
            continue
        name, kind = "argument" if argument.name.startswith("arg") else argument.name, argument.kind
        if kind.startswith("Sequence[") and isinstance(value, (list, tuple)):
            kind = kind[len("Sequence[") : -1]
            wrong = [i for i, item in enumerate(value) if not _fits(item, kind)]
            name, value = f"item {wrong[0]} of {name}", value[wrong[0]]
        size = " of 64 bits" if kind == "int" and isinstance(value, int) else ""
        return f"{name} is {described(value)}, expected {kind}{size}{conversion_of(value, kind)}"
    return ""


def refusal_of(function, docstring, values, names, quoted):
    """States in one sentence why a function does not take these arguments, of which the last ones
    have `names`; quoted(name) is a name in quotes."""
    if not function.startswith("__"):
        function = function.removeprefix("_")  # as `_full`, which a public function calls
    signatures, given = _signatures(docstring), _Given(values, names)
    taken = " or ".join(signature.text for signature in signatures)
    if len(signatures) == 1:
        wrong = _wrong_arguments(signatures[0], given, quoted)
        if wrong:
            return f"{function}: {wrong}; it takes {taken}"
        wrong = _wrong_value(signatures[0], given)
        if wrong:
            return f"{function}: {wrong}"
    self_given = signatures[0].self if signatures else 0
    return f"{function}: arguments are {given.in_words(self_given)}, expected {taken}"


def missing_in(where):
    """A module's __getattr__: raises an AttributeError with the nearest names."""

    def __getattr__(name):
        if name.startswith("_"):
            raise AttributeError(f"{where}: has no attribute {name!r}")
        from weft import _absent

        _absent.refuse(where, name)

    return __getattr__
