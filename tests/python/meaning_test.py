# SPDX-License-Identifier: Apache-2.0
"""One meaning per name: methods and operators are PyTorch's, as the functions of weft.torch; the
functions of weft are the array API's, and those that differ say so. Every name that is both a
function and a method is called in many forms."""

import inspect
import pathlib
import warnings

import numpy as np
import pytest
import weft
import weft.torch as T
from weft import _differing

README = (pathlib.Path(__file__).parents[2] / "python" / "README.md").read_text()
CUBE = np.arange(24, dtype="float32").reshape(2, 3, 4)
TENSORS = {
    "matrix": lambda: weft.tensor([[1.0, 2.0, 4.0], [7.0, 3.0, 5.0]]),
    "vector": lambda: weft.tensor([1.0, 2.0, 4.0]),
    "no dims": lambda: weft.tensor(2.5),
    "integers": lambda: weft.tensor([[0, 1, 0], [1, 0, 1]]),
    "bool": lambda: weft.tensor([True, False, True]),
    "nothing": lambda: weft.zeros(2, 0),
    "cube": lambda: weft.from_numpy(CUBE.copy()),
    "size 1": lambda: weft.ones(1, 3, 1),
}
# x stands for the tensor itself, i for integers.
FORMS = (
    *((), (0,), (-1,), (2,), (None,), (0.5,), (0, True), (0, 1), ((0, 1),), ("x",), ("i",)),
    *((0, "i"), (1, "i"), ((3, 2),), (0.5, 0), (0, 0, 1), (2, 1), ("x", "x"), ("i", "x")),
)
WORDS = ({}, {"dim": 0}, {"axis": -1}, {"dim": 0, "keepdim": True}, {"keepdims": True})
# Names of weft that are neither the array API's nor PyTorch's: a profile, a collective, a range.
OWN = {"trace", "scatter", "slice"}


def is_function(value):
    return callable(value) and not inspect.isclass(value) and not inspect.ismodule(value)


def methods_of(namespace):
    names = (name for name in dir(weft.Tensor) if not name.startswith("_"))
    mine = (name for name in names if callable(getattr(weft.Tensor, name)))
    return [name for name in mine if is_function(getattr(namespace, name, None))]


def shown(result):
    if isinstance(result, weft.Tensor):
        return "tensor", tuple(result.shape), str(result.dtype), repr(result.tolist())
    if isinstance(result, (list, tuple)):
        return tuple(shown(one) for one in result)
    return repr(result)


def outcome(function, tensor, form, words):
    x = TENSORS[tensor]()
    other = {"x": TENSORS[tensor](), "i": weft.tensor([[0, 1, 0], [1, 0, 1]])}
    given = [other[one] if isinstance(one, str) else one for one in form]
    weft.manual_seed(1)
    try:
        return shown(function(x, *given, **words))
    except (TypeError, ValueError, IndexError, AttributeError) as raised:
        return type(raised)


def differences(name, function):
    """Calls by which the function and the method return other values."""
    method, found = getattr(weft.Tensor, name), []
    calls = [(form, {}) for form in FORMS] + [((), words) for words in WORDS]
    for tensor in TENSORS:
        for form, words in calls:
            of_function = outcome(function, tensor, form, words)
            of_method = outcome(method, tensor, form, words)
            yield tensor, form, words, of_function, of_method


@pytest.mark.filterwarnings("ignore:weft.:UserWarning")
@pytest.mark.parametrize("name", methods_of(T))
def test_a_method_is_the_function_of_weft_torch(name):
    for tensor, form, words, of_function, of_method in differences(name, getattr(T, name)):
        if isinstance(of_function, type) and isinstance(of_method, type):
            continue
        is_refused = isinstance(of_function, type) or isinstance(of_method, type)
        if is_refused and name in ("flip", "permute"):
            continue  # the methods take dims one by one
        assert of_function == of_method, (tensor, form, words)


@pytest.mark.filterwarnings("ignore:weft.:UserWarning")
@pytest.mark.parametrize("name", [name for name in methods_of(weft) if name not in OWN])
def test_a_function_of_weft_returns_the_same_or_warns(name):
    found = [
        call
        for *call, of_function, of_method in differences(name, getattr(weft, name))
        if of_function != of_method and not {type} & {type(of_function), type(of_method)}
    ]
    assert bool(found) == (name in _differing.DIFFERENT), found[:3]


@pytest.mark.parametrize("name", _differing.DIFFERENT)
def test_the_first_call_that_depends_on_it_warns(name):
    x, function = TENSORS["matrix"](), getattr(weft, name)
    given = {"equal": (x, x), "repeat": (x, 2), "max": (x, 0), "min": (x, 0)}.get(name, (x,))
    independent = {
        "std": lambda: weft.std(x, correction=1),
        "var": lambda: weft.var(x, correction=0),
        "max": lambda: weft.max(x),
        "min": lambda: weft.min(x),
        "repeat": lambda: weft.repeat(x, 2, axis=0),
    }
    _differing.waiting.add(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        independent.get(name, lambda: None)()
        getattr(T, name)(*given)
    with pytest.warns(UserWarning, match=f"weft.{name} .*array API; Tensor.{name} and weft.torch"):
        function(*given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function(*given)
        _differing.waiting.add(name)
        assert x.__array_namespace__() is weft
        function(*given)


@pytest.mark.parametrize("name", _differing.DIFFERENT)
def test_the_readme_has_the_table(name):
    own, torchs, _ = _differing.DIFFERENT[name]
    assert f"| `{name}` | {own} | {torchs} |" in README


def test_issue_numbers():
    x = weft.tensor([1.0, 2.0, 4.0])
    assert abs(x.std().item() - np.std([1, 2, 4], ddof=1)) < 1e-6
    assert x.std().item() == T.std(x).item() == weft.std(x, correction=1).item()
