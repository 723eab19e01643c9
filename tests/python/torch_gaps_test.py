# SPDX-License-Identifier: Apache-2.0
"""Errors next to tensors of other libraries, and for names that are missing."""

import doctest
import inspect
import pathlib

import numpy as np
import pytest
import weft
import weft.torch as T
from weft import _absent, nn
from weft.nn import functional as F

DOCS = pathlib.Path(__file__).parents[2] / "docs"


class Other:
    """A tensor of another library."""

    def __dlpack__(self):
        raise NotImplementedError


FUNCTIONS = {
    "matmul": lambda y: weft.matmul(y, weft.ones(2, 2)),
    "add": lambda y: weft.add(weft.ones(2), y),
    "T.add": lambda y: T.add(y, 1),
    "where": lambda y: weft.where(y, 1.0, 2.0),
    "sum": lambda y: weft.sum(y),
    "method": lambda y: weft.ones(2).add(y),
    "stack": lambda y: weft.stack([weft.ones(2), y]),
    "linear": lambda y: F.linear(weft.ones(2), y),
    "std": lambda y: T.std(y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_name_the_other_library(name):
    with pytest.raises(TypeError) as raised:
        FUNCTIONS[name](Other())
    text = str(raised.value)
    assert "Other" in text and "from_dlpack" in text and "\n" not in text


def test_lists_are_converted_by_tensor():
    with pytest.raises(TypeError, match="x1 is a list, expected Tensor; convert it by weft.tensor"):
        weft.matmul([[1.0]], weft.ones(1, 1))


MISSING = {
    "weft": "complex64 fft array nothing_alike_at_all einsum_path",
    "weft.linalg": "qr svd norm",
    "weft.nn": "Conv2d BatchNorm1d LSTM cross_entropy LayerNrm",
    "weft.nn.functional": "conv1d nll_loss max_pool2d pad",
    "weft.torch": "compile Conv2d cos_ svd autocast",
    "weft.optim": "RMSprop LBFGS",
}


@pytest.mark.parametrize("path", MISSING)
def test_missing_names_say_what_is_nearest(path):
    place = eval(path)
    for name in MISSING[path].split():
        with pytest.raises(AttributeError) as raised:
            getattr(place, name)
        assert str(raised.value).startswith(f"{path} has no {name}: not offered")
        is_alone = name == "nothing_alike_at_all"
        assert ("; nearest: " in str(raised.value)) != is_alone
        assert not hasattr(place, name) and getattr(place, name, 3) == 3 and name not in dir(place)


def test_what_inspects_modules_works():
    for place in (weft, T, nn, F, weft.linalg):
        assert inspect.getdoc(place) and inspect.getmodule(place) is place
        assert not hasattr(place, "__wrapped__") and not hasattr(place, "__path_of__")
        with pytest.raises(AttributeError, match="has no attribute '_private'"):
            place._private
    assert doctest.DocTestFinder().find(weft.linalg)


def test_the_table_in_the_docs_is_the_table():
    text = (DOCS / "from-pytorch.md").read_text()
    assert _absent.table() in text


def test_what_is_nearest_exists():
    for text in _absent.NEAREST.values():
        for name in text.replace("(", " ").replace(")", " ").replace(",", " ").split():
            parts = name.strip(";").split(".")
            if parts[0] in ("nn", "optim", "linalg", "torch", "Tensor") and len(parts) > 1:
                place = weft
                for part in parts:
                    place = getattr(place, part)


def test_every_name_of_pytorch_is_answered():
    torch = pytest.importorskip("torch")
    for theirs, ours in (
        (torch, T),
        (torch.nn, nn),
        (torch.nn.functional, F),
        (torch.linalg, weft.linalg),
        (torch.optim, weft.optim),
        (np, weft),
    ):
        for name in dir(theirs):
            if not name.startswith("_"):
                getattr(ours, name, None)
    public = [name for name in torch.nn.__dict__ if name[:1].isupper() and not hasattr(nn, name)]
    alone = [name for name in public if not _absent.nearest("weft.nn", name)]
    assert len(alone) <= 4, alone
