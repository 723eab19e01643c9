# SPDX-License-Identifier: Apache-2.0
"""Dtypes of results: in weft.torch, in methods and in operators they are PyTorch's, where tensors
without dims do not decide next to tensors of their kind that have dims; in functions of weft they
are the array API's. tests/reference/make_torch_rules.py stores PyTorch's in torch_rules.json."""

import json
import operator
import pathlib

import pytest
import weft
import weft.torch as T

RULES = json.loads((pathlib.Path(__file__).parent / "torch_rules.json").read_text())
NUMBERS = {"True": True, "2": 2, "2.5": 2.5}
PAIRS = [pair.split(", ") for pair in RULES["promotion"]]


def operand(text):
    if text in NUMBERS:
        return NUMBERS[text]
    name, ndim = text.split()
    return weft.ones((2,) * int(ndim), dtype=getattr(weft, name))


def expected(a, b):
    return getattr(weft, RULES["promotion"][f"{a}, {b}"])


ARITHMETIC = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "maximum": lambda x, y: T.maximum(x, y),
    "T.add": T.add,
    "T.mul": T.mul,
    "T.sub, alpha": lambda x, y: T.sub(x, y, alpha=3),
    "T.where": lambda x, y: T.where(weft.tensor([True, False]), x, y),
    "T.fmod": T.fmod,
    "T.remainder": T.remainder,
    "T.addcmul": lambda x, y: T.addcmul(x, y, y),
    "T.clamp": lambda x, y: T.clamp(x, y),
    "method add": lambda x, y: x.add(y),
    "method clamp": lambda x, y: x.clamp(max=y),
    "method multiply": lambda x, y: x.multiply(y),
}
OF_TENSORS = {"maximum", "T.where", "T.fmod", "T.remainder", "T.addcmul"}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_promotes_as_pytorch(name):
    function = ARITHMETIC[name]
    for a, b in PAIRS:
        x, y = operand(a), operand(b)
        if not isinstance(x, weft.Tensor) or (name in OF_TENSORS and b in NUMBERS):
            continue
        if "bool" in a and expected(a, b) is weft.bool and name != "T.where":
            continue  # arithmetic of bool alone
        if name == "T.addcmul" and not a.endswith("1"):
            continue
        if ("clamp" in name and b in NUMBERS) or ("alpha" in name and "bool" in b):
            continue
        assert function(x, y).dtype is expected(a, b), (a, b)


def test_division_is_floating():
    for a, b in PAIRS:
        x, y = operand(a), operand(b)
        if not isinstance(x, weft.Tensor):
            continue
        of_both = expected(a, b)
        dtype = of_both if of_both.is_floating_point else weft.float32
        for made in (x / y, T.div(x, y), T.true_divide(x, y), x.div(y)):
            assert made.dtype is dtype, (a, b)


def test_the_other_side_counts_alike():
    for a, b in PAIRS:
        x, y = operand(a), operand(b)
        if isinstance(y, weft.Tensor) and expected(a, b) is not weft.bool:
            assert (x + y).dtype is expected(a, b), (a, b)


def test_comparisons_are_made_in_the_promoted_dtype():
    x, above = weft.ones(2, dtype=weft.bfloat16), weft.tensor(1.001)
    for compare in (operator.lt, operator.ne, T.lt, T.ne):
        assert not compare(x, above).any()
    assert weft.less(x, above).all() and weft.not_equal(x, above).all()


@pytest.mark.parametrize(
    "change", [operator.iadd, operator.imul, weft.Tensor.add_, weft.Tensor.mul_, operator.itruediv]
)
def test_changes_in_place_keep_the_dtype(change):
    for a, b in PAIRS:
        x, y = operand(a), operand(b)
        if not isinstance(x, weft.Tensor) or (a.endswith("0") and b.endswith("1")):
            continue
        is_division = change is operator.itruediv and not expected(a, b).is_floating_point
        if "bool" in a and expected(a, b) is weft.bool:
            continue
        kept = x.dtype
        if T.can_cast(weft.float32 if is_division else expected(a, b), kept):
            assert change(x, y).dtype is kept, (a, b)
        else:
            with pytest.raises(ValueError, match="expected one that the tensor of"):
                change(x, y)


def test_result_type_and_can_cast():
    for a, b in PAIRS:
        assert T.result_type(operand(a), operand(b)) is expected(a, b), (a, b)
    for pair, can in RULES["can_cast"].items():
        a, b = (getattr(weft, name) for name in pair.split(", "))
        assert T.can_cast(a, b) == can, pair


def test_functions_of_weft_follow_the_array_api():
    x, y = weft.ones(2), weft.tensor(2.0, dtype=weft.float64)
    for function in (weft.add, weft.multiply, weft.maximum, weft.atan2, weft.pow):
        assert function(x, y).dtype is weft.float64
        assert function(x, x).dtype is weft.float32
    assert weft.where(x > 0, x, y).dtype is weft.float64
    assert weft.result_type(x, y) is weft.float64


def test_gradients_have_the_dtypes_of_the_operands():
    x = weft.ones(3, dtype=weft.bfloat16).requires_grad_()
    scale = weft.tensor(2.0).requires_grad_()
    (x * scale).sum().backward()
    assert x.grad.dtype is weft.bfloat16 and scale.grad.dtype is weft.float32
    assert scale.grad.item() == 3


def test_parameters_without_dims_do_not_decide():
    class Scaled(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = weft.nn.Parameter(weft.tensor(2.0))

        def forward(self, x):
            return x * self.scale + T.mul(x, self.scale)

    y = Scaled()(weft.ones(3, dtype=weft.bfloat16))
    assert y.dtype is weft.bfloat16 and y.tolist() == [4, 4, 4]


def test_sharded_tensors_promote_alike():
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2})
        x = weft.distribute(weft.ones(3, dtype=weft.bfloat16), mesh, [weft.Shard(0)])
        total = weft.distribute(weft.ones(3), mesh, [weft.Shard(0)]).sum()
        return (x * total).dtype, (x / total).full_tensor().tolist()

    made = weft.run_ranks(2, body)
    assert made[0] == made[1] and made[0][0] is weft.bfloat16


def test_all_functions_of_two_agree_with_pytorch():
    torch = pytest.importorskip("torch")
    names = (
        "add sub mul true_divide floor_divide remainder fmod pow maximum minimum fmax fmin atan2 "
        "hypot copysign nextafter logaddexp bitwise_and bitwise_or eq lt ge"
    ).split()
    for name in names:
        for a, b in PAIRS:
            if a in NUMBERS or b in NUMBERS:
                continue
            made = [x.split() for x in (a, b)]
            of = [torch.ones((2,) * int(n), dtype=getattr(torch, d)) for d, n in made]
            try:
                dtype = str(getattr(torch, name)(*of).dtype).removeprefix("torch.")
            except RuntimeError:
                continue
            own = getattr(T, name)(operand(a), operand(b)).dtype
            assert own is getattr(weft, dtype), (name, a, b)
