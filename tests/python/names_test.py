# SPDX-License-Identifier: Apache-2.0
"""Every public function of the ops is bound, has a docstring, and is in the stubs."""

import ast
import inspect
import pathlib
import re

import pytest
import weft
from weft import _weft

ROOT = pathlib.Path(__file__).parent.parent.parent
PACKAGE = pathlib.Path(weft.__file__).resolve().parent
# The build writes it beside the links to the sources.
STUB = pathlib.Path(weft.__file__).parent / "_weft.pyi"

# The Python names of C++ functions that are named differently.
RENAMED = {
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "neg": "negative",
    "cast": "astype",
    "expand": "broadcast_to",
    "permute": "permute_dims",
    "from_values": "from_numpy",
    "number_like": "_full",
    "randint": "_randint",
    "full": "_full",
    "take_along_dim": "take_along_axis",
    "stddev": "std",
    "next_to": "_full",
    "embedding_bag": "_embedding_bag",
    "take_flat": "_torch_take",
    "index": "__getitem__",
    "constant_pad": "_torch_constant_pad_nd",
    "scatter_along_dim": "_scatter_along",
    "slice_scatter": "_slice_scatter",
    "assign_": "__setitem__",
    "l1_loss": "_torch_l1_loss",
    "smooth_l1_loss": "_torch_smooth_l1_loss",
    "huber_loss": "_torch_huber_loss",
    "binary_cross_entropy": "_torch_binary_cross_entropy",
    "binary_cross_entropy_with_logits": "_torch_binary_cross_entropy_with_logits",
    "kl_div": "_torch_kl_div",
    "nll_loss": "_torch_nll_loss",
    "cosine_embedding_loss": "_torch_cosine_embedding_loss",
    "cross_entropy_of_classes": "_torch_cross_entropy",
    "gaussian_nll_loss": "_torch_gaussian_nll_loss",
    "hinge_embedding_loss": "_torch_hinge_embedding_loss",
    "margin_ranking_loss": "_torch_margin_ranking_loss",
    "multi_margin_loss": "_torch_multi_margin_loss",
    "multilabel_margin_loss": "_torch_multilabel_margin_loss",
    "multilabel_soft_margin_loss": "_torch_multilabel_soft_margin_loss",
    "poisson_nll_loss": "_torch_poisson_nll_loss",
    "soft_margin_loss": "_torch_soft_margin_loss",
    "triplet_margin_loss": "_torch_triplet_margin_loss",
    "convolution": "_convolution",
    "convolution_same": "_convolution",
    "transposed_convolution": "_transposed_convolution",
    "avg_pool": "_avg_pool",
    "adaptive_avg_pool": "_adaptive_avg_pool",
    "image_to_columns": "_image_to_columns",
    "columns_to_image": "_columns_to_image",
    "batch_norm": "_batch_norm",
    "instance_norm": "_batch_norm",
    "group_norm": "_group_norm",
}


def functions_of(header):
    text = header.read_text()
    return set(re.findall(r"WEFT_API (?:Tensor|void|const Tensor&) (\w+)\(", text))


ACTIVATIONS = functions_of(ROOT / "include/weft/ops/activations.h")
RENAMED |= {name: f"_torch_{name}" for name in ACTIVATIONS} | {"pad_as": "_torch_pad"}
HEADERS = sorted((ROOT / "include/weft/ops").glob("*.h"))


@pytest.mark.parametrize("header", HEADERS, ids=lambda h: h.stem)
def test_every_function_of_the_ops_is_bound(header):
    functions = functions_of(header)
    assert functions
    names = {RENAMED.get(f, f) for f in functions}
    missing = {n for n in names if not (hasattr(_weft, n) or hasattr(_weft.Tensor, n))}
    assert not missing


def bound(name):
    return getattr(_weft, name)


def is_named_tuple(name):
    """A type of the standard library, which has no separate stub."""
    return hasattr(bound(name), "_fields")


NAMES = [n for n in dir(_weft) if not n.startswith("_") and not is_named_tuple(n)]


@pytest.mark.parametrize("name", NAMES)
def test_every_bound_name_has_a_docstring(name):
    value = bound(name)
    if callable(value):
        # The first line is the signature, written by pybind11.
        assert value.__doc__ and value.__doc__.strip(), name
    if inspect.isroutine(value):
        assert len(value.__doc__.strip().splitlines()) > 1, name


def stub_names():
    """{name: names of the class, or None} of the stub file."""
    names = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef):
            members = set()
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.ClassDef)):
                    members.add(inner.name)
                elif isinstance(inner, ast.AnnAssign):
                    members.add(inner.target.id)
            names[node.name] = members
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = None
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = None
    return names


def test_the_stubs_list_every_bound_name():
    stubs = stub_names()
    assert set(NAMES) <= set(stubs)
    for name in NAMES:
        value = bound(name)
        if not inspect.isclass(value) or issubclass(value, BaseException):
            continue
        own = {n for n in vars(value) if not n.startswith("__") or n == "__call__"}
        own -= {n for n in own if n.startswith("_pybind11")}
        if value is _weft.Module or value is _weft.Parameter:
            # The package adds functions to these classes; they are typed in its own sources.
            own = {n for n in own if not inspect.isfunction(vars(value)[n])}
        assert own <= stubs[name], name


def test_functions_as_methods_take_self_in_the_stub():
    methods = STUB.read_text().partition("\nclass Tensor:")[2].partition("\nclass ")[0]
    for name in ("sum", "copy_", "add", "split"):
        assert f"def {name}(self" in methods and f"def {name}(x" not in methods
