# SPDX-License-Identifier: Apache-2.0
"""A PyTorch script runs on weft after changing four lines, with equal numbers; and PyTorch's names
exist."""

import ast
import difflib
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import weft
from weft import nn, optim
from weft.nn import functional as F

FOLDER = pathlib.Path(__file__).parent.parent.parent / "docs" / "from_pytorch"
PROGRAM = os.environ["WEFT_PROGRAM"]
MOST_CHANGED_LINES = 5


def lines_beside_imports(path):
    text = path.read_text()
    imports = set()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports |= set(range(node.lineno, node.end_lineno + 1))
    return [line for number, line in enumerate(text.splitlines(), 1) if number not in imports]


def changed_lines():
    """The number of changed lines: for each place, the larger of removed and added lines."""
    texts = [lines_beside_imports(FOLDER / f"{name}_tutorial.py") for name in ("torch", "weft")]
    places = difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in places if kind != "equal")


def test_few_lines_differ():
    assert 0 < changed_lines() <= MOST_CHANGED_LINES


def test_the_document_counts_the_lines_that_differ():
    numbers = {"three": 3, "four": 4, "five": 5}
    text = (FOLDER.parent / "from-pytorch.md").read_text()
    assert numbers[re.search(r"imports and (\w+) other lines", text)[1]] == changed_lines()


def results(text):
    """{what: numbers} of a script's output, without the rank prefixes of `weft run`."""
    text = re.sub(r"^\[\d+\] ", "", text, flags=re.M)
    found = {}
    for part in re.split(r"^(?=[a-z])", text, flags=re.M)[1:]:
        what = re.match(r"(loss \d|norm of [\w.]+|[a-z_ ]+?(?= [\[\d-]))", part)[0]
        found[what] = np.array(re.findall(r"-?\d+\.\d*(?:e-?\d+)?", part[len(what) :]), float)
    return found


def assert_equal_numbers(text):
    expected, got = results((FOLDER / "output.txt").read_text()), results(text)
    assert list(got) == list(expected) and len(expected) == 18
    for what, numbers in expected.items():
        assert numbers.size > 0
        np.testing.assert_allclose(
            got[what], numbers, rtol=0, atol=1e-5 * np.abs(numbers).max(), err_msg=what
        )


def run(*command):
    environment = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=240, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wefts_numbers_are_pytorchs():
    assert_equal_numbers(
        run(PROGRAM, "run", "-n", 4, "--", sys.executable, FOLDER / "weft_tutorial.py")
    )


def test_pytorchs_numbers_are_those_that_lie_there():
    pytest.importorskip("torch")
    script = FOLDER / "torch_tutorial.py"
    assert_equal_numbers(
        run(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 4, script)
    )


def test_factories_take_sizes_one_by_one():
    for make in (weft.randn, weft.rand, weft.zeros, weft.ones, weft.empty):
        assert make(4, 3).shape == make((4, 3)).shape == make(size=[4, 3]).shape == (4, 3)
        assert make(5).shape == (5,) and make(()).shape == ()
        assert make(2, requires_grad=True).requires_grad and not make(2).requires_grad
    weft.manual_seed(3)
    one_by_one = weft.randn(2, 3).tolist()
    weft.manual_seed(3)
    assert weft.randn((2, 3)).tolist() == one_by_one

    def body(world):
        mesh = weft.init_device_mesh("cpu", (3,), mesh_dim_names=("dp",), world=world)
        x = weft.zeros(5, 2, device_mesh=mesh, placements=[weft.Shard(0)])
        return x.shape, x.to_local().shape

    assert weft.run_ranks(3, body) == [((5, 2), n) for n in ((2, 2), (2, 2), (1, 2))]


def test_tensors_have_pytorchs_methods():
    x = weft.from_numpy(np.arange(24.0).reshape(2, 3, 4))
    assert x.flatten().shape == (24,) and x.flatten(1).shape == (2, 12)
    assert x.flatten(0, 1).shape == x.flatten(-3, -2).shape == (6, 4)
    assert x.flatten(0, 1).tolist() == x.numpy().reshape(6, 4).tolist()
    copy = x.clone()
    copy.fill_(1)
    assert x.sum().item() == 276 and copy.sum().item() == 24
    assert x.contiguous() is x


def test_contiguous_makes_memory_dense():
    x = weft.from_numpy(np.arange(6.0).reshape(2, 3))
    assert not x.T.numpy().flags.c_contiguous
    dense = x.T.contiguous()
    assert dense.numpy().flags.c_contiguous and dense.contiguous() is dense
    assert dense.tolist() == x.T.tolist() == [[0, 3], [1, 4], [2, 5]]
    x.requires_grad_()
    (x.T.contiguous() * 2).sum().backward()
    assert x.grad.tolist() == [[2, 2, 2]] * 2


def test_tensors_go_to_dtypes_and_devices():
    x = weft.ones((2, 3))
    assert x.to("cpu") is x.cpu() is x and x.to(weft.float32).dtype is weft.float32
    for given in (weft.float64, "float64", "f64", weft.zeros(1, dtype=weft.float64)):
        assert x.to(given).dtype is x.to("cpu", weft.float64).dtype is weft.float64
    assert x.to(device="cpu", dtype=weft.int32, non_blocking=True).dtype is weft.int32
    copied = x.to(weft.float32, copy=True)
    copied.fill_(5)
    assert x.sum().item() == 6
    kinds = {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16"}
    for name, dtype in (kinds | {"int": "int32", "long": "int64", "bool": "bool"}).items():
        assert getattr(x, name)().dtype is getattr(weft, dtype)
    absent = f"cuda:{weft.device_count()}"
    with pytest.raises(ValueError, match=f"device: {absent} does not exist"):
        x.to(absent)
    leaf = weft.ones((2,)).requires_grad_()
    leaf.to("cpu", weft.float64).sum().backward()
    assert leaf.grad.tolist() == [1.0, 1.0]


def test_softmax_takes_a_dim():
    x = weft.from_numpy(X)
    for dim in (0, 1, 2, -1, -3):
        for got in (x.softmax(dim=dim), x.softmax(dim), weft.softmax(x, dim=dim)):
            np.testing.assert_allclose(got.numpy(), softmax(X, dim), rtol=1e-6)
        logs = x.log_softmax(dim=dim).numpy()
        np.testing.assert_allclose(logs, np.log(softmax(X, dim)), rtol=1e-6)


def test_dims_count_from_the_end():
    values = np.arange(35.0, dtype=np.float32).reshape(5, 7)

    def body(world):
        mesh = weft.init_device_mesh("cpu", (3,), mesh_dim_names=("tp",), world=world)
        x = weft.distribute_tensor(weft.from_numpy(values), mesh, [weft.Shard(-1)])
        out = [x, x.redistribute(placements=[weft.Shard(-2)], async_op=True)]
        out.append(weft.zeros(5, 7, device_mesh=mesh, placements={"tp": weft.Shard(-1)}))
        out.append(weft.DTensor.from_local(x.to_local(), mesh, [weft.Shard(-1)], run_check=False))
        whole = weft.from_numpy(values)
        out.append(weft.distribute_tensor(whole, mesh, [weft.Shard(-2)], src_data_rank=1))
        mine = weft.from_numpy(values).requires_grad_() if world.rank == 1 else None
        out.append(weft.distribute_tensor(mine, mesh, [weft.Shard(0)], src_data_rank=1))
        assert out.pop().requires_grad
        for one in out[1::2]:
            np.testing.assert_array_equal(one.full_tensor().numpy(), values)
        with pytest.raises(ValueError, match=r"placement: it is S\(-3\), expected a dim of the 2"):
            weft.distribute_tensor(weft.ones((2, 2)), mesh, [weft.Shard(-3)])
        with pytest.raises(ValueError, match="run_check is True"):
            weft.DTensor.from_local(x.to_local(), mesh, [weft.Shard(1)], run_check=True)
        model = nn.Linear(4, 6)
        style = weft.ColwiseParallel(output_layouts=weft.Shard(-1))
        weft.parallelize_module(model, mesh, {"": style})
        model.materialize()
        y = model(weft.ones(5, 4, device_mesh=mesh))
        group = mesh.get_group("tp")
        assert group.size == 3 and group.rank == world.rank and mesh.device_type == "cpu"
        return [one.placements[0].dim for one in [*out, y]]

    assert weft.run_ranks(3, body) == [[1, 0, 1, 1, 0, 1]] * 3


def test_optimizers_take_pytorchs_arguments():
    model = nn.Linear(3, 2)
    model.materialize()
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    model(weft.ones((4, 3))).sum().backward()
    with pytest.raises(ValueError, match="norm_type is -1, expected one above 0"):
        weft.clip_grad_norm_(model.parameters(), 1.0, norm_type=-1)
    norm = weft.clip_grad_norm_(
        model.parameters(), max_norm=0.5, norm_type=2.0, error_if_nonfinite=True, foreach=False
    )
    grads = [p.grad.numpy() for p in model.parameters()]
    np.testing.assert_allclose(np.sqrt(sum((g**2).sum() for g in grads)), 0.5, rtol=1e-5)
    np.testing.assert_allclose(norm, np.sqrt(6 * 16 + 2 * 16), rtol=1e-5)
    for one in (optimizer, model):
        with pytest.raises(ValueError, match="set_to_none is False"):
            one.zero_grad(set_to_none=False)
        one.zero_grad(set_to_none=True)
        assert model.weight.grad is None
    (model(weft.ones((1, 3))).sum() * float("inf")).backward()
    for one in (model, model.parameters(), (p for p in model.parameters())):
        with pytest.raises(RuntimeError, match="the norm of the gradients is (inf|nan)"):
            weft.clip_grad_norm_(one, 1.0, error_if_nonfinite=True)
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    assert optimizer.lr == 5e-3 and len(optimizer.param_groups) == 1
    optimizer.param_groups[0]["betas"] = (0.5, 0.9)
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.9)
    with pytest.raises(TypeError, match="amsgrad"):
        optim.Adam(model, amsgrad=True)


def test_modules_have_pytorchs_methods():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])

    model, seen = Net(), []
    assert model.apply(lambda module: seen.append(type(module).__name__)) is model
    assert seen == ["Linear", "ReLU", "ModuleList", "Net"]
    assert model.to("cpu") is model.cpu() is model.to(weft.float32) is model
    assert model.to(device="cpu") is model
    assert model.to_empty(device="cpu") is model and model.layers[0].weight.is_materialized
    with pytest.raises(ValueError, match="cuda:0 does not exist"):
        model.to("cuda")
    assert model.to(weft.bfloat16).layers[0].weight.dtype is weft.bfloat16


# The deviations of the values, or half the range of uniform ones, by PyTorch's formulas.
INITS = {
    "normal_": (lambda w: nn.init.normal_(w, std=0.3), 0.3, None),
    "uniform_": (lambda w: nn.init.uniform_(w, -2, 2), None, 2),
    "xavier_uniform_": (lambda w: nn.init.xavier_uniform_(w, 2.0), None, 2 * (6 / 300) ** 0.5),
    "xavier_normal_": (nn.init.xavier_normal_, (2 / 300) ** 0.5, None),
    "kaiming_uniform_": (lambda w: nn.init.kaiming_uniform_(w, a=5**0.5), None, 0.1),
    "kaiming_normal_": (
        lambda w: nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"),
        (2 / 200) ** 0.5,
        None,
    ),
}


@pytest.mark.parametrize("name", INITS)
def test_initial_values_are_pytorchs(name):
    init, deviation, half = INITS[name]

    def values(fill_before, world=None):
        model = nn.Linear(100, 200)
        if world:
            weft.fully_shard(model, weft.DeviceMesh(world, {"dp": 3}))
        weft.manual_seed(4)
        if not fill_before:
            model.materialize()
            weft.manual_seed(4)
        assert init(model.weight) is model.weight
        model.materialize()
        return model.weight.data.full_tensor().numpy().copy()

    drawn = values(True)
    if half is None:
        assert abs(drawn.std() / deviation - 1) < 0.02 and abs(drawn.mean()) < deviation / 50
    else:
        assert abs(drawn).max() <= half and abs(drawn.std() * 3**0.5 / half - 1) < 0.02
    np.testing.assert_array_equal(values(False), drawn)
    for sharded in weft.run_ranks(3, lambda world: values(True, world)):
        np.testing.assert_array_equal(sharded, drawn)


def test_initial_values_may_be_constant():
    model = nn.LayerNorm(3)
    nn.init.ones_(model.bias)
    model.materialize()
    assert nn.init.zeros_(model.weight).tolist() == [0.0] * 3
    assert model.bias.data.tolist() == [1.0] * 3
    assert nn.init.constant_(weft.ones(2), 4).tolist() == [4.0, 4.0]
    with pytest.raises(ValueError, match="expected at least 2 dims"):
        nn.init.xavier_normal_(model.bias)
    with pytest.raises(ValueError, match='nonlinearity is "swish", expected one of'):
        nn.init.calculate_gain("swish")


def test_whole_numbers_are_drawn():
    weft.manual_seed(1)
    drawn = weft.randint(-3, 4, (1000,))
    assert drawn.dtype is weft.int64 and sorted(set(drawn.tolist())) == list(range(-3, 4))
    assert weft.randint(5, (2, 3)).shape == (2, 3) and weft.device("cpu") == "cpu"
    for low in (2**24, 2**31 - 20, 2**53 - 10, -(2**62)):
        numbers = weft.randint(low, low + 10, (1000,)).numpy()
        assert sorted(set((numbers - low).tolist())) == list(range(10))
    assert weft.randint(7, (4,), dtype=weft.float32).dtype is weft.float32
    assert weft.randint(0, 10.0, (4,), dtype="int32").dtype is weft.int32
    counts = np.bincount(weft.randint(0, 3 * 2**30, (300000,)).numpy() % 3)
    assert abs(counts - 100000).max() < 1500
    with pytest.raises(ValueError, match="expected whole numbers"):
        weft.randint(0, 1.5, (2,))
    with pytest.raises(ValueError, match="expected numbers that u8 holds"):
        weft.randint(0, 300, (2,), dtype=weft.uint8)
    with pytest.raises(ValueError, match="difference of 1 to 2\\^32"):
        weft.randint(0, 2**33, (2,))
    with pytest.raises(ValueError, match="expected low below high"):
        weft.randint(4, 4, (2,))


def test_styles_take_pytorchs_arguments():
    values = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(np.float32)

    def body(world):
        mesh = weft.init_device_mesh("cpu", (1, 3), mesh_dim_names=("dp", "tp"), world=world)
        model = nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 4))
        plan = {
            "0": weft.ColwiseParallel(input_layouts=weft.Replicate(), use_local_output=False),
            "1": weft.RowwiseParallel(input_layouts=weft.Shard(2), output_layouts=weft.Shard(1)),
        }
        whole = nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 4))
        weft.parallelize_module(model, device_mesh=mesh["tp"], parallelize_plan=plan)
        for one in (whole, model):
            weft.manual_seed(2)
            one.materialize()
        out = model(weft.distribute_tensor(weft.from_numpy(values), device_mesh=mesh))
        return out.placements[1], out.full_tensor().detach().numpy(), (
            whole(weft.from_numpy(values)).detach().numpy()
        )

    for placement, out, expected in weft.run_ranks(3, body):
        assert placement == weft.Shard(1)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-7)


def test_the_policy_of_dtypes_is_pytorchs():
    def body(world):
        mesh = weft.init_device_mesh("cpu", (3,), mesh_dim_names=("dp",), world=world)
        kinds = []

        class Sees(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 7)

            def forward(self, x):
                y = self.layer(x)
                kinds.extend([x.dtype, y.dtype])
                return y

        policy = weft.MixedPrecisionPolicy(
            param_dtype=weft.bfloat16, reduce_dtype=weft.float32, output_dtype=weft.float32
        )
        model = weft.fully_shard(Sees(), mesh, mp_policy=policy)
        model.materialize()
        y = model(weft.ones(6, 4, device_mesh=mesh, placements=[weft.Shard(0)]))
        y.sum().backward()
        return [*kinds, y.dtype, model.layer.weight.data.dtype, model.layer.weight.grad.dtype]

    bf16, f32 = weft.bfloat16, weft.float32
    assert weft.run_ranks(3, body) == [[bf16, bf16, f32, f32, f32]] * 3


def test_a_state_dict_is_in_order_of_declaration():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 3))
    model.materialize()
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def softmax(x, axis):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


X = np.random.default_rng(1).standard_normal((4, 5, 6))
Y = np.random.default_rng(2).standard_normal((4, 5, 6))


def test_functions_are_those_of_numpy():
    x, y = weft.from_numpy(X), weft.from_numpy(Y)
    targets = np.array([[1, 2, -100, 0, 5]] * 4)
    rows = -np.log(np.take_along_axis(softmax(X, 2), np.maximum(targets, 0)[..., None], 2))[..., 0]
    counted = np.where(targets >= 0, rows, 0)
    scale = np.arange(6.0)
    norm = (X - X.mean(2, keepdims=True)) / np.sqrt(X.var(2, keepdims=True) + 1e-5)
    root = X / np.sqrt(np.square(X).mean(2, keepdims=True) + 1e-5)
    weights, ids = weft.from_numpy(scale), weft.from_numpy(targets)
    cases = [
        (F.mse_loss(x, y), np.square(X - Y).mean()),
        (F.mse_loss(x, y, reduction="sum"), np.square(X - Y).sum()),
        (F.mse_loss(x, y, reduction="none"), np.square(X - Y)),
        (F.cross_entropy(x, ids), counted.sum() / (targets >= 0).sum()),
        (F.cross_entropy(x, ids, reduction="sum"), counted.sum()),
        *((F.softmax(x, dim), softmax(X, dim)) for dim in (0, 1, 2, -1, -2)),
        (F.log_softmax(x, dim=1), np.log(softmax(X, 1))),
        (F.layer_norm(x, (6,), weights, weights), norm * scale + scale),
        (F.rms_norm(x, (6,), weights), root * scale),
        (F.embedding(weft.from_numpy(np.array([3, 0])), x[0]), X[0][[3, 0]]),
    ]
    for got, expected in cases:
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert F.dropout(x, 0.5, training=False) is x


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_numpy(causal):
    q, k, v = (np.random.default_rng(n).standard_normal((2, 4, 5, 6)) for n in range(3))
    k, v = k[:, :2], v[:, :2]
    scores = q @ np.repeat(k, 2, axis=1).swapaxes(2, 3) / np.sqrt(6)
    if causal:
        scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -np.inf)
    expected = softmax(scores, 3) @ np.repeat(v, 2, axis=1)
    tensors = [weft.from_numpy(part.copy()) for part in (q, k, v)]
    got = F.scaled_dot_product_attention(*tensors, is_causal=causal)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)
    alike = np.tril(np.ones((5, 5))) if causal else np.ones((5, 5))
    means = alike / alike.sum(1, keepdims=True) @ np.repeat(v, 2, axis=1)
    got = F.scaled_dot_product_attention(*tensors, is_causal=causal, scale=0.0)
    np.testing.assert_allclose(got.numpy(), means, rtol=1e-5, atol=1e-6)


def _attention(q, k, v, mask, scale):
    scores = q @ np.repeat(k, q.shape[1] // k.shape[1], axis=1).swapaxes(2, 3) * scale
    scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    return softmax(scores, 3) @ np.repeat(v, q.shape[1] // v.shape[1], axis=1)


@pytest.mark.parametrize("heads", [4, 2])
@pytest.mark.parametrize("kind", ["bool", "added"])
def test_attention_with_a_mask(heads, kind):
    draw = np.random.default_rng(3)
    q, k, v = (draw.standard_normal((2, n, 5, 6)) for n in (4, heads, heads))
    mask = draw.random((5, 5)) > 0.3 if kind == "bool" else draw.standard_normal((4, 5, 5))
    mask[..., 0] = True
    got = F.scaled_dot_product_attention(
        *(weft.from_numpy(part) for part in (q, k, v)),
        attn_mask=weft.from_numpy(mask),
        scale=0.3,
        enable_gqa=heads != 4,
    )
    np.testing.assert_allclose(got.numpy(), _attention(q, k, v, mask, 0.3), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored, smoothing", [(-100, 0.1), (2, 0.0), (2, 0.2)])
def test_cross_entropy_with_smoothing_and_ignored_targets(ranks, reduction, ignored, smoothing):
    draw = np.random.default_rng(4)
    logits = draw.standard_normal((8, 6)).astype(np.float32)
    targets = np.array([0, ignored, 1, 3, ignored, 5, 4, 4])
    logs = np.log(softmax(logits, 1))
    rows = -logs[np.arange(8), np.maximum(targets, 0)] * (1 - smoothing)
    rows = np.where(targets == ignored, 0, rows - logs.mean(1) * smoothing)
    sums = {"none": rows, "sum": rows.sum(), "mean": rows.sum() / (targets != ignored).sum()}

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": ranks})
        shards = [weft.Shard(0)]
        parts = (weft.distribute(weft.from_numpy(x), mesh, shards) for x in (logits, targets))
        losses = F.cross_entropy(
            *parts, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing
        )
        return losses.full_tensor().numpy()

    for got in weft.run_ranks(ranks, body):
        np.testing.assert_allclose(got, sums[reduction], rtol=1e-5, atol=1e-6)


def test_norms_without_weights_and_the_other_gelu():
    x = weft.from_numpy(X)
    norm = (X - X.mean(2, keepdims=True)) / np.sqrt(X.var(2, keepdims=True) + 1e-5)
    root = X / np.sqrt(np.square(X).mean(2, keepdims=True) + 1e-5)
    scale = np.arange(6, dtype=X.dtype)
    inner = np.sqrt(2 / np.pi) * (X + 0.044715 * X**3)
    for got, expected in [
        (F.layer_norm(x, (6,)), norm),
        (F.layer_norm(x, (6,), weft.from_numpy(scale), None), norm * scale),
        (F.rms_norm(x, (6,)), root),
        (F.gelu(x, approximate="tanh"), 0.5 * X * (1 + np.tanh(inner))),
    ]:
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)


class _Foreign:
    """A tensor of another library."""

    def __init__(self, array):
        self._array = array

    def detach(self):
        return self

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("ranks", [1, 2])
def test_state_dicts_of_other_libraries_are_loaded(ranks):
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)

    def body(world):
        model = nn.Linear(3, 4)
        if ranks > 1:
            weft.fully_shard(model, weft.DeviceMesh(world, {"dp": ranks}))
        model.materialize()
        model.load_state_dict({"weight": _Foreign(weight), "bias": np.ones(4, np.float32)})
        state = model.state_dict()
        assert not state["weight"].requires_grad
        if ranks == 1:
            assert np.asarray(state["bias"]).tolist() == np.from_dlpack(state["bias"]).tolist()
        return state["weight"].full_tensor().numpy()

    for got in weft.run_ranks(ranks, body):
        np.testing.assert_array_equal(got, weight)


def test_a_module_names_the_tensor_of_another_library():
    class Net(nn.Module):
        def forward(self, x):
            return x

    for module in (Net(), nn.Linear(3, 4)):
        with pytest.raises(TypeError, match="_Foreign, expected a weft.Tensor.*; convert it by"):
            module(_Foreign(np.ones((2, 3), np.float32)))


def test_device_types():
    def body(world):
        mesh = weft.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",), world=world)
        assert mesh.device_type == mesh["dp"].device_type == mesh.root.device_type == "cpu"
        x = weft.zeros(4, 2, device_mesh=mesh)
        assert x.device == "cpu" and x.device_mesh.device_type == "cpu"
        kinds = [(name, sentence) for name, sentence in (
            ("tpu", 'name is "tpu"'), ("cuda", "cuda:0 does not exist")
        ) if name == "tpu" or weft.device_count("cuda") == 0]
        for name, sentence in kinds:
            with pytest.raises(ValueError, match=sentence):
                weft.init_device_mesh(name, (2,), world=world)

    weft.run_ranks(2, body)


@pytest.mark.skipif(weft.device_count("cuda") == 0, reason="no GPU, nor an emulated one")
def test_modules_and_meshes_on_a_gpu():
    layer = nn.Linear(3, 4)
    layer.materialize()
    (layer(weft.ones(2, 3))).sum().backward()
    before = layer.weight.data.numpy().copy()
    assert layer.to("cuda") is layer and layer.weight.device == "cuda:0"
    assert layer.weight.grad.device == "cuda:0"
    assert layer(weft.ones(2, 3).to("cuda")).device == "cuda:0"
    np.testing.assert_array_equal(layer.to("cpu").weight.data.numpy(), before)

    def body(world):
        mesh = weft.init_device_mesh("cuda", (1,), world=world)
        x = weft.ones(4, device_mesh=mesh)
        made = weft.eye(3, mesh=mesh), weft.arange(3, mesh=mesh), weft.linspace(0, 1, 3, mesh=mesh)
        assert [str(tensor.device) for tensor in made] == ["cuda:0"] * 3
        np.testing.assert_array_equal(made[0].full_tensor().to("cpu").numpy(), np.eye(3))
        return mesh.device_type, str(x.device), x.device_mesh.device_type

    assert weft.run_ranks(1, body) == [("cuda", "cuda:0", "cuda")]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: F.mse_loss(x, x[0]), "mse_loss: target is [5, 6], expected [4, 5, 6], the"),
        (lambda x: F.mse_loss(x, x, reduction="most"), 'reduction is "most", expected mean, sum'),
        (lambda x: F.cross_entropy(x[0], x[0], label_smoothing=2), "label_smoothing is 2, expect"),
        (lambda x: F.softmax(x, dim=3), "softmax: dim is 3, expected one of the 3 dims"),
        (lambda x: F.gelu(x, approximate="erf"), 'approximate is "erf", expected none or tanh'),
        (
            lambda x: F.scaled_dot_product_attention(x, x, x, x, is_causal=True),
            "is_causal and attn_mask are given, expected one",
        ),
        (lambda x: F.rms_norm(x, (6, 5)), "normalized_shape is [6, 5], expected the last dims of"),
        (
            lambda x: F.scaled_dot_product_attention(
                x.unsqueeze(0), x[:, :3].unsqueeze(0), x.unsqueeze(0), is_causal=True
            ),
            "number of queries is 5, expected 3",
        ),
    ],
)
def test_what_they_do_not_do_is_told(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call(weft.from_numpy(X))
