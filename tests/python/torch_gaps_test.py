# SPDX-License-Identifier: Apache-2.0
"""Uses of PyTorch scripts beyond the names: factories over a mesh, norms over several dims,
dropout of everything, rounding to decimals, and errors next to tensors of other libraries and for
names that are missing. Expected numbers are NumPy's."""

import copy
import doctest
import inspect
import pathlib
import pickle

import numpy as np
import pytest
import weft
import weft.torch as T
from weft import _absent, nn
from weft.nn import functional as F

DOCS = pathlib.Path(__file__).parents[2] / "docs"
FACTORIES = {
    "arange": (8,),
    "empty": (4, 2),
    "eye": (4,),
    "full": ((4, 2), 1.5),
    "linspace": (0, 1, 4),
    "ones": (4, 2),
    "rand": (4, 2),
    "randint": (0, 5, (4, 2)),
    "randn": (4, 2),
    "zeros": (4, 2),
}


@pytest.mark.parametrize("word", ["device_mesh", "mesh"])
@pytest.mark.parametrize("name", FACTORIES)
def test_factories_take_a_mesh(name, word):
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2})
        for namespace in (weft, T):
            make, given = getattr(namespace, name), FACTORIES[name]
            weft.manual_seed(3)
            whole = make(*given)
            weft.manual_seed(3)
            cut = make(*given, **{word: mesh, "placements": [weft.Shard(0)]})
            assert cut.placements == (weft.Shard(0),) and cut.local().shape[0] == len(cut) // 2
            assert name == "empty" or np.array_equal(cut.full_tensor().numpy(), whole.numpy())
            assert make(*given, **{word: mesh}).placements == (weft.Replicate(),)

    weft.run_ranks(2, body)


def test_sizes_are_named_as_in_pytorch():
    assert T.full(size=(2, 3), fill_value=2.0).tolist() == [[2.0] * 3] * 2
    assert weft.zeros(size=(2,)).shape == weft.full(size=(2,), fill_value=1).shape == (2,)


X = np.random.default_rng(0).standard_normal((4, 6, 8)).astype("float32")


def normalized(x, axes, centred):
    mean = x.mean(axes, keepdims=True) if centred else 0
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize("cut", [None, 0, 1, 2])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms_over_several_dims(kind, dims, cut):
    shape = X.shape[-dims:]
    scale, shift = (np.linspace(a, 2, np.prod(shape), dtype="float32") for a in (1, 0))
    scale, shift = scale.reshape(shape), shift.reshape(shape)
    plain = normalized(X, tuple(range(3 - dims, 3)), kind == "layer")

    def body(mesh):
        x = weft.from_numpy(X)
        parameters = [weft.from_numpy(scale), weft.from_numpy(shift)][: 2 if kind == "layer" else 1]
        layer = (nn.LayerNorm if kind == "layer" else nn.RMSNorm)(list(shape), device="cpu")
        assert layer.normalized_shape == shape and layer.weight.shape == shape
        layer.load_state_dict(dict(zip(("weight", "bias"), parameters)))
        if mesh is not None:
            x = weft.distribute(x, mesh, [weft.Shard(cut)])
            parameters = [weft.distribute(p, mesh) for p in parameters]
        x.requires_grad_()
        function = F.layer_norm if kind == "layer" else F.rms_norm
        bare, made = function(x, shape), function(x, shape, *parameters)
        (made * made).sum().backward()
        of_layer = [] if mesh is not None else [layer(x)]
        gradient = x.grad
        whole = [y.full_tensor() if y.is_sharded else y for y in (bare, made, gradient, *of_layer)]
        return [y.detach().numpy() for y in whole]

    if cut is None:
        ranks = [body(None)]
    else:
        ranks = weft.run_ranks(2, lambda world: body(weft.DeviceMesh(world, {"a": 2})))
    expected = plain * scale + (shift if kind == "layer" else 0)
    alone = body(None)
    for bare, made, gradient, *of_layer in ranks:
        np.testing.assert_allclose(bare, plain, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(gradient, alone[2], rtol=1e-3, atol=1e-4)
        for y in of_layer:
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_norms_equal_pytorchs():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X).requires_grad_()
    ours = weft.from_numpy(X.copy()).requires_grad_()
    weight = np.linspace(1, 2, 48, dtype="float32").reshape(6, 8)
    y = torch.nn.functional.layer_norm(x, (6, 8), torch.from_numpy(weight))
    z = F.layer_norm(ours, (6, 8), weft.from_numpy(weight))
    (y**3).sum().backward()
    (z**3).sum().backward()
    np.testing.assert_allclose(z.detach().numpy(), y.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours.grad.numpy(), x.grad.numpy(), rtol=1e-3, atol=1e-4)


def test_norms_refuse_other_shapes():
    x = weft.ones(2, 3, 4)
    for shape in ((4, 3), (2,), (2, 2, 3, 4), ()):
        with pytest.raises(ValueError, match="normalized_shape is .*, expected the last dims of"):
            F.layer_norm(x, shape)
    with pytest.raises(ValueError, match=r"a parameter is \[4, 3\], expected \[3, 4\]"):
        F.layer_norm(x, (3, 4), weft.ones(4, 3))
    with pytest.raises(ValueError, match="number of dims is 0, expected at least 1"):
        nn.LayerNorm(())
    module = copy.deepcopy(nn.LayerNorm((3, 4), 1e-3, bias=False, device="cpu"))
    assert module.normalized_shape == (3, 4) and module.bias is None


def test_dropout_of_everything():
    for drop in (lambda x: F.dropout(x, 1.0), nn.Dropout(1.0), lambda x: weft.dropout(x, 1.0)):
        x = weft.ones(3).requires_grad_()
        y = drop(x)
        y.sum().backward()
        assert y.tolist() == x.grad.tolist() == [0, 0, 0]
    assert np.isnan(F.dropout(weft.tensor([np.inf]), 1.0).item())  # as in PyTorch
    assert F.dropout(weft.ones(3), 1.0, training=False).tolist() == [1, 1, 1]
    q = weft.ones(1, 2, 3, 8)
    assert not F.scaled_dot_product_attention(q, q, q, dropout_p=1.0).any()


@pytest.mark.parametrize("decimals", [-3, -1, 0, 1, 2, 4])
def test_rounding_to_decimals(decimals):
    values = np.array([1234.5678, -2.5, 0.05, 1250.0, -1249.9], "float32")
    scale = np.float32(10.0 ** abs(decimals))
    up, down = (values * scale, values / scale)
    expected = np.round(up) / scale if decimals > 0 else np.round(down) * scale
    x = weft.from_numpy(values.copy())
    for made in (x.round(decimals=decimals), T.round(x, decimals=decimals)):
        np.testing.assert_allclose(made.numpy(), expected, rtol=1e-6)
    assert x.round_(decimals=decimals) is x and np.allclose(x.numpy(), expected, rtol=1e-6)


class Other:
    """A tensor of another library."""

    def __dlpack__(self):
        raise NotImplementedError


ARRAY = np.ones(2, "float32")
OPERATORS = "+ - * / // % ** @ == != < <= > >= & | ^".split()


@pytest.mark.parametrize("other", [ARRAY, Other()], ids=["numpy", "other"])
@pytest.mark.parametrize("sign", OPERATORS)
def test_operators_name_the_other_library(sign, other):
    kind = "numpy.ndarray" if other is ARRAY else f"{__name__}.Other"
    for x, y in ((weft.ones(2), other), (other, weft.ones(2))):
        with pytest.raises(TypeError) as raised:
            eval(f"x {sign} y")
        text = f"operand is a {kind}, expected a weft.Tensor or a number; convert it by weft."
        assert text in str(raised.value)


def test_operators_leave_other_types_to_them():
    class Added:
        def __radd__(self, x):
            return "own"

    x = weft.ones(2)
    assert x + Added() == "own"
    assert (x == None) is False and (x == "a") is False and x != [1]  # noqa: E711
    assert [0] * weft.tensor(3) == [0, 0, 0]
    assert (np.float32(2) * x).tolist() == [2, 2] and (x + np.int64(1)).tolist() == [2, 2]
    assert np.asarray(x).tolist() == [1, 1]
    for wrong in (None, "a", [1, 2], {}):
        with pytest.raises(TypeError, match="unsupported operand|can only|not supported"):
            x - wrong


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
    "clip": lambda y: weft.clip(weft.ones(2), y, 2.0),
    "index": lambda y: weft.ones(2).__setitem__(0, y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_name_the_other_library(name):
    with pytest.raises(TypeError) as raised:
        FUNCTIONS[name](Other())
    text = str(raised.value)
    assert "Other" in text and "from_dlpack" in text and "\n" not in text


def test_pytorchs_tensors_are_told_from_wefts():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="x1 is a torch.Tensor, expected Tensor; convert it by"):
        weft.matmul(torch.ones(2, 2), weft.ones(2, 2))
    for call in (lambda t, x: t + x, lambda t, x: x * t, lambda t, x: t @ x):
        with pytest.raises(TypeError, match="torch.Tensor, expected"):
            call(torch.ones(2, 2), weft.ones(2, 2))


MISSING = {
    "weft": "cdouble stft array nothing_alike_at_all",
    "weft.linalg": "ldl_factor householder_product",
    "weft.nn": "LPPool2d SyncBatchNorm LSTM cross_entropy LayerNrm",
    "weft.nn.functional": "interpolate ctc_loss lp_pool1d grid_sample",
    "weft.torch": "compile Conv2d cos_ lobpcg autocast cuda",
    "weft.optim": "RMSprop LBFGS",
    "weft.optim.lr_scheduler": "SWALR",
}
NEAREST = {
    "weft.torch cuda": 'Device("cuda:0"), device_count("cuda"), synchronize',
    "weft.optim.lr_scheduler SWALR": (
        "optim.lr_scheduler.LambdaLR, or a class of optim.lr_scheduler.LRScheduler"
    ),
    "weft.optim RMSprop": (
        "optim.AdamW, optim.Adam, optim.SGD, or a class of optim.Optimizer"
    ),
    "weft.nn softmax": "weft.softmax",
    "weft.torch is_signed": "Tensor.dtype, isdtype",
}


@pytest.mark.parametrize("name", NEAREST)
def test_nearest_names(name):
    assert _absent.nearest(*name.split()) == NEAREST[name]


def test_only_compiled_functions_are_copied():
    for copied in (weft._weft._method, lambda f: weft._weft._by_dims(f, "f")):
        with pytest.raises(TypeError, match="function: it is a int, expected a compiled one"):
            copied(3)


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
    assert pickle.loads(pickle.dumps(weft.std)) is weft.std
    assert pickle.loads(pickle.dumps(T.mul)) is T.mul is copy.deepcopy(T.mul)


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
