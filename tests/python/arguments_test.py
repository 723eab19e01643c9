# SPDX-License-Identifier: Apache-2.0
"""Arguments by NumPy's and PyTorch's words and places, the kinds of numbers, and how tensors
print; what they are compared with is PyTorch's."""

import numpy as np
import pytest
import weft
from weft import Replicate, Shard

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def _x():
    return weft.from_numpy(X.copy())


SAME = {
    "sum": (X.sum(1), [lambda x: weft.sum(x, 1), lambda x: weft.sum(x, dim=1),
                       lambda x: weft.sum(x, axis=1), lambda x: x.sum(1), lambda x: x.sum(dim=1),
                       lambda x: x.sum(axes=[1]), lambda x: weft.sum(input=x, dim=1)]),
    "sum over two": (X.sum((0, 2), keepdims=True),
                     [lambda x: x.sum((0, 2), True), lambda x: x.sum([0, 2], keepdim=True),
                      lambda x: x.sum(dim=(0, 2), keepdims=True),
                      lambda x: weft.sum(x, axis=(0, 2), keepdim=True)]),
    "mean": (X.mean(-1), [lambda x: weft.mean(x, -1), lambda x: x.mean(dim=-1),
                          lambda x: weft.mean(x, axis=-1)]),
    "argmax": (X.argmax(1, keepdims=True),
               [lambda x: x.argmax(1, True), lambda x: weft.argmax(x, dim=1, keepdim=True)]),
    "std": (X.std(1, keepdims=True, ddof=1),
            [lambda x: x.std(1, keepdim=True), lambda x: x.std(axis=1, keepdims=True),
             lambda x: weft.std(x, dim=1, correction=1, keepdim=True)]),
    "split": (X[:, :2], [lambda x: weft.split(x, 2, 1)[0], lambda x: weft.split(x, 2, axis=1)[0],
                         lambda x: x.split(2, dim=1)[0], lambda x: x.split(2, axis=1)[0]]),
    "flip": (X[::-1, ::-1], [lambda x: x.flip(0, 1), lambda x: x.flip((0, 1)),
                             lambda x: weft.flip(x, [0, 1]), lambda x: weft.flip(x, dims=(0, 1)),
                             lambda x: weft.flip(x, axis=(0, 1))]),
    "stack": (np.stack([X, X], 1), [lambda x: weft.stack([x, x], 1),
                                    lambda x: weft.stack([x, x], dim=1),
                                    lambda x: weft.stack([x, x], axis=1)]),
    "concat": (np.concatenate([X, X], 1), [lambda x: weft.cat([x, x], 1),
                                           lambda x: weft.cat([x, x], axis=1),
                                           lambda x: weft.concat([x, x], dim=1),
                                           lambda x: weft.concat(tensors=[x, x], dim=1)]),
    "roll": (np.roll(X, 1, 0), [lambda x: weft.roll(x, 1, 0),
                                lambda x: weft.roll(x, shifts=1, dims=0),
                                lambda x: weft.roll(x, 1, axis=0)]),
    "cumsum": (X.cumsum(1), [lambda x: weft.cumulative_sum(x, 1),
                             lambda x: weft.cumulative_sum(x, dim=1)]),
    "var": (X.var(1, keepdims=True), [lambda x: weft.var(x, 1, keepdims=True),
                                      lambda x: weft.var(x, dim=1, keepdim=True)]),
    "sort": (-np.sort(-X, -1), [lambda x: weft.sort(x, -1, True),
                                lambda x: weft.sort(x, dim=-1, descending=True)]),
    "take": (X[:, [1]], [lambda x: weft.take(x, weft.tensor([1]), dim=1),
                         lambda x: weft.take(x, weft.tensor([1]), 1)]),
    "tril": (np.tril(X, 1), [lambda x: weft.tril(x, 1), lambda x: weft.tril(x, diagonal=1),
                             lambda x: weft.tril(x, k=1)]),
    "unsqueeze": (X[:, None], [lambda x: x.unsqueeze(1), lambda x: weft.unsqueeze(x, axis=1),
                               lambda x: weft.expand_dims(x, dim=1),
                               lambda x: weft.expand_dims(x, 1)]),
    "permute": (X.transpose(2, 0, 1), [lambda x: x.permute(2, 0, 1), lambda x: x.permute([2, 0, 1]),
                                       lambda x: weft.permute(x, (2, 0, 1)),
                                       lambda x: weft.permute(x, dims=(2, 0, 1))]),
    "add": (X + 1, [lambda x: weft.add(input=x, other=1), lambda x: weft.add(x, other=1)]),
    "norm": (np.sqrt((X * X).sum(1)), [lambda x: weft.norm(x, dim=1),
                                       lambda x: weft.linalg.vector_norm(x, dim=1)]),
    "softmax": (np.exp(X) / np.exp(X).sum(-1, keepdims=True),
                [lambda x: x.softmax(-1), lambda x: x.softmax(axis=-1),
                 lambda x: weft.nn.functional.softmax(x, axis=-1),
                 lambda x: weft.softmax(x, dim=-1)]),
}


@pytest.mark.parametrize("name", SAME)
def test_words_and_places_are_both_libraries(name):
    expected, calls = SAME[name]
    for number, call in enumerate(calls):
        np.testing.assert_allclose(
            call(_x()).numpy(), expected, rtol=1e-5, err_msg=f"{name} call {number}"
        )


def test_two_words_for_one_argument_are_refused():
    for call in (lambda x: weft.mean(x, axis=0, dim=0), lambda x: weft.roll(x, 1, axis=0, dim=0)):
        with pytest.raises(ValueError, match=": argument axis is given as dim too, expected"):
            call(_x())
    with pytest.raises(TypeError, match="stack: axis is given by position and by name"):
        weft.stack([_x()], 0, axis=0)
    with pytest.raises(TypeError, match='mean: argument "width" does not exist; it takes'):
        weft.mean(_x(), width=1)


@pytest.mark.parametrize(
    "call, dtype",
    [
        (lambda n, t: n * 1.0, "float32"),
        (lambda n, t: n + 1.0, "float32"),
        (lambda n, t: n - 1.0, "float32"),
        (lambda n, t: 1.0 - n, "float32"),
        (lambda n, t: 2.0**n, "float32"),
        (lambda n, t: n**2.0, "float32"),
        (lambda n, t: n // 1.0, "float32"),
        (lambda n, t: n % 2.0, "float32"),
        (lambda n, t: n * np.float64(1.0), "float32"),
        (lambda n, t: weft.where(t, n, 1.0), "float32"),
        (lambda n, t: weft.maximum(n, 1.0), "float32"),
        (lambda n, t: weft.clip(n, min=1.0), "float32"),
        (lambda n, t: t * 2.0, "float32"),
        (lambda n, t: n * 2, "int64"),
        (lambda n, t: n * True, "int64"),
        (lambda n, t: n * np.int64(2), "int64"),
        (lambda n, t: t * 1, "int64"),
        (lambda n, t: t + True, "bool"),
        (lambda n, t: n.to(weft.bfloat16) * 2.0, "bfloat16"),
        (lambda n, t: n == 1.0, "bool"),
    ],
)
def test_the_kind_of_a_number_decides_not_its_value(call, dtype):
    assert call(weft.arange(3), weft.tensor([True, False, True])).dtype.name == dtype


@pytest.mark.parametrize(
    "tensor, expected",
    [
        (lambda: weft.ones(2, 2), "[[1., 1.],\n [1., 1.]]"),
        (
            lambda: weft.reshape(weft.arange(12), (3, 4)),
            "[[ 0,  1,  2,  3],\n [ 4,  5,  6,  7],\n [ 8,  9, 10, 11]]",
        ),
        (
            lambda: weft.reshape(weft.arange(24), (2, 3, 4)),
            "[[[ 0,  1,  2,  3],\n  [ 4,  5,  6,  7],\n  [ 8,  9, 10, 11]],\n\n"
            " [[12, 13, 14, 15],\n  [16, 17, 18, 19],\n  [20, 21, 22, 23]]]",
        ),
        (lambda: weft.tensor([1.5, -2.0, 1e-3]), "[ 1.5000e+00, -2.0000e+00,  1.0000e-03]"),
        (lambda: weft.tensor([1e10, 1.0]), "[1.0000e+10, 1.0000e+00]"),
        (lambda: weft.tensor([True, False]), "[ True, False]"),
        (lambda: weft.tensor([np.nan, 1.0, np.inf]), "[nan, 1., inf]"),
        (lambda: weft.zeros(3), "[0., 0., 0.]"),
        (lambda: weft.tensor([0.5, -0.25]), "[ 0.5000, -0.2500]"),
        (lambda: weft.tensor([100.0, 1.0]), "[100.,   1.]"),
        (lambda: weft.tensor([2**60]), "[1152921504606846976]"),
        (lambda: weft.arange(2000), "[   0,    1,    2,  ..., 1997, 1998, 1999]"),
        (
            lambda: weft.arange(30) / 7,
            "[0.0000, 0.1429, 0.2857, 0.4286, 0.5714, 0.7143, 0.8571, 1.0000, 1.1429, 1.2857,\n"
            " 1.4286, 1.5714, 1.7143, 1.8571, 2.0000, 2.1429, 2.2857, 2.4286, 2.5714, 2.7143,\n"
            " 2.8571, 3.0000, 3.1429, 3.2857, 3.4286, 3.5714, 3.7143, 3.8571, 4.0000, 4.1429]",
        ),
        (
            lambda: weft.reshape(weft.arange(10 * 200) % 7, (10, 200)),
            "[[0, 1, 2,  ..., 1, 2, 3],\n [4, 5, 6,  ..., 5, 6, 0],\n [1, 2, 3,  ..., 2, 3, 4],\n"
            " ...,\n [0, 1, 2,  ..., 1, 2, 3],\n [4, 5, 6,  ..., 5, 6, 0],\n"
            " [1, 2, 3,  ..., 2, 3, 4]]",
        ),
    ],
)
def test_a_tensor_prints_its_elements_as_pytorch_does(tensor, expected):
    header, elements = str(tensor()).split("\n", 1)
    assert header.startswith("Tensor([") and header.endswith("cpu)")
    assert elements == expected
    assert repr(tensor()) == str(tensor()) == f"{tensor()}"


def test_what_has_no_dims_or_no_elements_prints_in_a_line():
    assert str(weft.tensor(3.5)) == "Tensor([], f32, cpu) 3.5000"
    assert str(weft.tensor(7)) == "Tensor([], i64, cpu) 7"
    assert str(weft.zeros((0, 3))) == "Tensor([0, 3], f32, cpu) []"
    assert str(weft.zeros(3, device="meta")) == "Tensor([3], f32, meta)"
    for module in (weft, weft.torch):
        for like in (module.zeros_like, module.empty_like, module.rand_like):
            for device, of in (("meta", "cpu"), ("cpu", "meta")):
                made = like(weft.ones(2, 3, device=of), device=device, dtype=weft.float64)
                assert (made.device, made.shape, made.dtype) == (device, (2, 3), weft.float64)


def test_a_sharded_tensor_prints_the_ranks_part():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 3})
        return str(weft.distribute(weft.reshape(weft.arange(10), (5, 2)), mesh, [Shard(0)]))

    header = "Tensor([5, 2], i64, cpu, mesh(dp=3)[S(0)])\n"
    assert weft.run_ranks(3, body) == [
        header + "rank 0 holds [2, 2] from [0, 0]:\n[[0, 1],\n [2, 3]]",
        header + "rank 1 holds [2, 2] from [2, 0]:\n[[4, 5],\n [6, 7]]",
        header + "rank 2 holds [1, 2] from [4, 0]:\n[[8, 9]]",
    ]


def test_an_op_without_a_backward_raises_where_a_gradient_reaches_it():
    x = weft.ones(3, requires_grad=True)
    triple = weft.Op("triple", "... -> ...", lambda call, a: a * 3)
    y = triple(x)
    assert y.requires_grad
    with pytest.raises(ValueError, match="^triple: it has no backward, expected one where a"):
        (y + x).sum().backward()
    stops = weft.Op("stops", "... -> ...", lambda call, a: a * 3, differentiable=False)
    assert not stops(x).requires_grad
    (stops(x) * x).sum().backward()
    assert x.grad.tolist() == [3, 3, 3]
    signs = weft.Op("signs", "... -> ...", lambda call, a: np.sign(a).astype(int), dtype="int64")
    assert not signs(x).requires_grad


def test_an_op_gets_dense_arrays_of_the_dtypes_that_it_declares():
    seen = []
    op = weft.Op(
        "doubled",
        "... -> ...",
        lambda call, a: (seen.append(a.flags.c_contiguous), a * 2)[1],
        dtypes=["float32", "float64"],
    )
    x = weft.from_numpy(X.copy())
    np.testing.assert_array_equal(op(x.transpose(0, 2)).numpy(), X.transpose(2, 1, 0) * 2)
    assert seen == [True]
    sentence = r"^doubled: operand 0 \[3\] is i64, expected f32 or f64; cast it"
    with pytest.raises(ValueError, match=sentence):
        op(weft.arange(3))
