# SPDX-License-Identifier: Apache-2.0
"""The variants of PyTorch's OpInfo that were right in all samples stay right: on whole tensors, in
random layouts on 4 ranks and on 2x2, and their gradients. `opinfo.py --all` takes all samples."""

import importlib.util
import re

import opinfo
import pytest

RIGHT = opinfo.RIGHT.read_text().split()
PARTS = 8
MISSING = [n for n in ("torch", "expecttest", "scipy") if importlib.util.find_spec(n) is None]
# Right on whole tensors without gradients only.
NO_GRADIENT = {
    "cholesky_inverse": "PyTorch returns gradients for elements that it does not read",
    "cholesky_solve": "PyTorch returns gradients for elements that it does not read",
    "as_strided_scatter": "PyTorch's gradient of a tensor written over by a scalar is 1",
    "linalg.pinv.hermitian": "its gradient belongs to the triangle that is read; PyTorch's to both",
    "nn.functional.layer_norm": "PyTorch's gradient of one element is not exactly 0",
    "nextafter": "it refuses a gradient in weft",
    "zero_": "fills are not recorded; they refuse tensors that require gradients",
}
NO_LAYOUT = {"item": "an element is read from full_tensor()"}

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"PyTorch's samples need {', '.join(MISSING)}"
)


def check(names, **how):
    found = opinfo.verdicts("^(" + "|".join(map(re.escape, names)) + ")$", **how)
    assert {name: found[name] for name in names if found[name][0] != "right"} == {}


@pytest.mark.parametrize("part", range(PARTS))
def test_whole_tensors(part):
    check(RIGHT[part::PARTS], samples=6)


@pytest.mark.parametrize("part", range(PARTS))
def test_gradients(part):
    check([n for n in RIGHT[part::PARTS] if n not in NO_GRADIENT], samples=3, grad=True)


@pytest.mark.parametrize("mesh", [(), (4,), (2, 2)])
@pytest.mark.parametrize("part", range(PARTS))
def test_second_gradients(part, mesh):
    found = opinfo.verdicts(
        "^(" + "|".join(map(re.escape, RIGHT[part::PARTS])) + ")$",
        samples=1 if mesh else 3, mesh=mesh, grad="second",
    )  # fmt: skip
    wrong = {n: v for n, v in found.items() if v[0] != "right" and n not in NO_GRADIENT}
    assert wrong == {}


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
@pytest.mark.parametrize("part", range(PARTS))
def test_layouts(part, mesh):
    names = [n for n in RIGHT[part::PARTS] if n not in NO_GRADIENT and n not in NO_LAYOUT]
    check(names, samples=1, mesh=mesh, grad=True)


# The gradients are those of Hermitian matrices; PyTorch's have a part that no such matrix has.
HERMITIAN = {"linalg.cholesky", "linalg.cholesky_ex", "linalg.pinv.hermitian"}


@pytest.mark.parametrize("mesh", [(), (2, 2)])
def test_complex_matrices(mesh):
    found = opinfo.verdicts(
        "^(linalg[.].*|lu.*|logdet|qr|svd|pinverse)$", samples=1 if mesh else 6, mesh=mesh,
        grad=True, dtype="complex128",
    )  # fmt: skip
    wrong = {n: v for n, v in found.items() if v[0] != "right" and n not in HERMITIAN}
    assert wrong == {} and len(found) >= 39


def test_every_variant_is_right_or_left_out_for_a_reason():
    reasons = opinfo.left_out()
    unknown = [n for n in opinfo.all_variants() if not opinfo.reason_for(n, reasons)]
    assert sorted(set(unknown) - set(RIGHT)) == []
