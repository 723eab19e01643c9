# SPDX-License-Identifier: Apache-2.0
"""Checks names of PyTorch besides functions: imports of modules, sizes, pairs, generators, and
methods that change their tensor."""

import importlib
import pydoc

import numpy as np
import pytest
import weft
import weft.torch as T


def test_modules_are_imported_by_pytorchs_paths():
    for name in ("nn", "nn.functional", "nn.init", "optim", "optim.lr_scheduler"):
        module = importlib.import_module(f"weft.torch.{name}")
        assert module.__name__.startswith("weft.")


def test_size_is_a_number_and_a_method():
    x = weft.zeros(3, 4)
    assert x.size == 12 and isinstance(x.size, int)
    assert (x.size(), x.size(0), x.size(-1)) == ((3, 4), 3, 4)


def test_extremes_of_a_dim_come_with_indices():
    x = T.tensor([[1.0, 5.0], [7.0, 2.0]])
    assert x.max(dim=1).indices.tolist() == [1, 0]
    assert x.min(0).values.tolist() == [1.0, 2.0]
    assert x.max().item() == 7


def test_generators_have_streams_of_their_own():
    T.manual_seed(1)
    expected = T.randn(3).tolist()
    T.manual_seed(1)
    first = T.randn(3, generator=T.Generator().manual_seed(5))
    assert T.randn(3).tolist() == expected
    generator = T.Generator().manual_seed(5)
    assert T.equal(first, T.randn(3, generator=generator))
    assert not T.equal(first, T.randn(3, generator=generator))
    with pytest.raises(TypeError, match="randn: generator is 4, expected a Generator"):
        T.randn(3, generator=4)


LIKE = weft.ones(2, 3)
# Arguments of the factories of weft and weft.torch, and of those of one of them.
FACTORIES = {
    "arange": (3.0,),
    "empty": (2, 3),
    "empty_like": (LIKE,),
    "eye": (3,),
    "full": ((2,), 1.5),
    "full_like": (LIKE, 2.0),
    "linspace": (0, 1, 5),
    "ones": (2,),
    "ones_like": (LIKE,),
    "rand": (2, 3),
    "rand_like": (LIKE,),
    "randint_like": (LIKE, 0, 4),
    "randn": (2, 3),
    "randn_like": (LIKE,),
    "tensor": ([1.0],),
    "zeros": (2, 3),
    "zeros_like": (LIKE,),
}
FACTORIES_OF_WEFT = FACTORIES | {"normal": ((2, 3),), "uniform": ((2, 3),)}
FACTORIES_OF_TORCH = FACTORIES | {
    "asarray": ([1.0],),
    "empty_permuted": ((2, 3), (0, 1)),
    "empty_strided": ((2, 3), (3, 1)),
    "logspace": (0, 1, 5),
    "new_empty": (LIKE, (2,)),
    "new_empty_strided": (LIKE, (2, 3), (3, 1)),
    "new_full": (LIKE, (2,), 1.0),
    "new_ones": (LIKE, (2,)),
    "new_zeros": (LIKE, (2,)),
    "normal": (0.0, 1.0, (2, 3)),
    "scalar_tensor": (2.0,),
}


@pytest.mark.parametrize(
    ("namespace", "name", "given"),
    [
        *((weft, *item) for item in FACTORIES_OF_WEFT.items()),
        *((T, *item) for item in FACTORIES_OF_TORCH.items()),
    ],
)
def test_factories_make_leaves_that_require_a_gradient(namespace, name, given):
    made = getattr(namespace, name)(*given, requires_grad=True)
    assert made.requires_grad and made.is_leaf
    (made * 2).sum().backward()
    assert made.grad.tolist() == np.full(made.shape, 2.0).tolist()
    assert not getattr(namespace, name)(*given).requires_grad


def test_whole_numbers_of_a_floating_dtype_may_require_a_gradient():
    for draw in (weft.randint, T.randint):
        made = draw(0, 9, (4,), dtype=weft.float32, requires_grad=True)
        assert made.requires_grad and made.is_leaf and made.dtype is weft.float32
    assert T.randperm(4, dtype=weft.float32, requires_grad=True).requires_grad
    with pytest.raises(ValueError, match="requires_grad"):
        weft.arange(3, requires_grad=True)


def test_randperm_is_a_permutation():
    assert sorted(T.randperm(1000).tolist()) == list(range(1000))
    assert T.randperm(0).tolist() == []


def test_methods_change_their_tensor():
    x = T.tensor([[1.0, 2, 3], [4, 5, 6]], requires_grad=True)
    y = x * 2
    y.masked_fill_(T.tensor([[True, False, True], [False, True, False]]), 0.0)
    y.scatter_add_(1, T.tensor([[0, 2], [1, 1]]), x[:, :2] * 3)
    y.index_add_(0, T.tensor([0]), x[1:2])
    y.tril_()
    assert y.tolist() == [[7, 0, 0], [8, 27, 0]]
    y.square().sum().backward()
    assert x.grad.tolist() == [[42, 0, 0], [208, 162, 0]]
    z = T.zeros(4).index_put_((T.tensor([1, 3]),), T.tensor([5.0, 6.0]))
    z.index_fill_(0, T.tensor([0]), 7.0)
    assert z.index_copy_(0, T.tensor([2]), T.tensor([9.0])).tolist() == [7, 5, 9, 6]


def test_none_is_no_object_of_a_method():
    with pytest.raises(TypeError, match="Tensor.dim: self is None, expected an object"):
        weft.Tensor.dim(None)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "float32"])
def test_transposed_operands_have_their_elements(dtype):
    values = np.arange(35 * 40).reshape(35, 40) % 100
    x = weft.from_numpy(values.astype(dtype))
    other = weft.from_numpy(np.ascontiguousarray(values.T.astype(dtype)))
    assert bool(weft.all(weft.equal(x.T, other)))
    assert np.array_equal(np.asarray(x.T + other), 2 * values.T.astype(dtype))


@pytest.mark.parametrize("cut", ["x", "index"])
def test_a_bad_index_is_an_error_on_all_ranks(cut):
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2, "b": 2})
        whole = [weft.Replicate(), weft.Replicate()]
        parts = [weft.Shard(0), weft.Replicate()]
        x = weft.distribute(weft.ones(6, 4), mesh, parts if cut == "x" else whole)
        index = weft.tensor([0, 1, 2, 3, 0, 1, 2, 9])
        index = weft.distribute(index, mesh, parts if cut == "index" else whole)
        with pytest.raises(IndexError) as raised:
            x[index]
        return str(raised.value)

    assert len(set(weft.run_ranks(4, body))) == 1


def test_quantile_takes_all_of_a_sharded_q():
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2})
        q = weft.distribute(weft.tensor([0.0, 0.5, 1.0]), mesh, [weft.Shard(0)])
        x = weft.tensor([3.0, 1.0, 2.0])
        return T.quantile(x, q).tolist(), T.nanquantile(x, q).tolist()

    assert weft.run_ranks(2, body) == [([1, 2, 3], [1, 2, 3])] * 2


def test_functions_show_their_own_names():
    for name, function in vars(T).items():
        if name.startswith("_") or isinstance(function, type) or not callable(function):
            continue
        shown = function.__name__
        same = [getattr(module, shown, None) for module in (T, weft)]
        assert shown == name or any(one is function for one in same), (name, shown)
    assert "cumsum(input: Tensor, dim: int" in pydoc.plain(pydoc.render_doc(T.cumsum))
    assert "new_zeros" in pydoc.plain(pydoc.render_doc(T.new_zeros))


def test_sums_are_scaled():
    x = T.tensor([1.0, 2.0])
    assert T.add(x, 3, alpha=2).tolist() == [7, 8]
    assert T.sub(x, x, alpha=0.5).tolist() == [0.5, 1]
    assert T.add(2, x).tolist() == T.subtract(x, -2).tolist() == [3, 4]
    with pytest.raises(TypeError, match="add: arguments are"):
        T.add(x, x, alpha=x)


def test_a_tensor_without_dims_has_one_element():
    x = T.tensor(3, dtype=T.int32)
    assert T.cumsum(x, 0).dtype is T.cumprod(x, -1).dtype is T.int64
    assert T.sum(x, 0).shape == T.amax(x, -1, keepdim=True).shape == T.max(x, 0).indices.shape == ()
    assert T.sum(T.ones(2, 3), dim=()).item() == 6
    assert T.sum(T.ones(3, dtype=T.uint8)).dtype is T.int64
    assert T.prod(T.ones(3), dtype=T.int32).dtype is T.int32
    with pytest.raises(ValueError, match="max: number of dims is 2, expected 1"):
        T.max(T.ones(2, 3), (0, 1))
