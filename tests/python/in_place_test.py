# SPDX-License-Identifier: Apache-2.0
"""Operators and methods that change tensors and parameters in place, compared with PyTorch."""

import numpy as np
import pytest
import weft
from weft import Partial, Replicate, Shard, nn

VALUES = [1.0, -2.0, 4.0]


def _vector(values=VALUES, **options):
    return weft.tensor(values, **options)


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda x: x.__iadd__(1), [2, -1, 5]),
        (lambda x: x.__isub__(0.5), [0.5, -2.5, 3.5]),
        (lambda x: x.__imul__(weft.tensor([1.0, 2.0, 3.0])), [1, -4, 12]),
        (lambda x: x.__itruediv__(2), [0.5, -1, 2]),
        (lambda x: x.__ifloordiv__(3), [0, -1, 1]),
        (lambda x: x.__imod__(3), [1, 1, 1]),
        (lambda x: x.__ipow__(2), [1, 4, 16]),
        (lambda x: x.add_(2.0, alpha=3), [7, 4, 10]),
        (lambda x: x.sub_(x, alpha=2), [-1, 2, -4]),
        (lambda x: x.mul_(3).div_(2), [1.5, -3, 6]),
        (lambda x: x.addcmul_(x, x, value=0.5), [1.5, 0, 12]),
        (lambda x: x.addcdiv_(x, weft.tensor([2.0, 4.0, 8.0]), value=2), [2, -3, 5]),
        (lambda x: x.lerp_(weft.zeros(3), 0.25), [0.75, -1.5, 3]),
        (lambda x: x.clamp_(-1, 2), [1, -1, 2]),
        (lambda x: x.clamp_(min=0), [1, 0, 4]),
        (lambda x: x.neg_().abs_().sqrt_().square_().round_(), [1, 2, 4]),
        (lambda x: x.relu_(), [1, 0, 4]),
        (lambda x: x.zero_(), [0, 0, 0]),
        (lambda x: x.fill_(7), [7, 7, 7]),
        (lambda x: x.copy_(weft.tensor([5])), [5, 5, 5]),
    ],
)
def test_changes_are_pytorchs_and_in_the_same_memory(change, expected):
    x = _vector()
    alias = x.detach()
    assert change(x) is x
    assert alias.tolist() == expected


def test_operators_of_integers_and_bits():
    x = weft.tensor([1, 6, 12])
    alias = x
    x &= 6
    x |= 1
    x ^= 7
    x <<= 2
    x >>= 1
    x //= 2
    assert x is alias and x.tolist() == [6, 0, 2] and x.dtype is weft.int64
    flags = weft.tensor([True, False])
    flags &= True
    assert flags.dtype is weft.bool and flags.tolist() == [True, False]


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda: weft.arange(3).add_(1.0), "add_: the result is f32, expected one that the tensor"),
        (lambda: weft.arange(3).div_(2), "div_: the result is f32"),
        (lambda: weft.arange(3).exp_(), "exp_: the result is f32"),
        (lambda: weft.tensor([True]).add_(1), "add_: the result is i64"),
        (lambda: weft.ones(3).add_(weft.ones(2, 3)), r"operand 1 is \[2, 3\], expected one that"),
        (lambda: weft.ones(3, requires_grad=True).add_(1), "is a leaf that requires a gradient"),
        (lambda: weft.ones(3, requires_grad=True)[:1].mul_(2), "or a view of one"),
        (lambda: nn.Parameter(weft.ones(3)).mul_(2), "is a leaf that requires a gradient"),
        (lambda: nn.Parameter(weft.ones(3)).zero_(), "requires a gradient"),
        (lambda: nn.Linear(2, 3).weight.mul_(2), r"the parameter \[3, 2\] has no memory"),
    ],
)
def test_what_cannot_be_in_place_raises(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        change()


def test_a_foreign_operand_is_a_type_error():
    x = _vector()
    with pytest.raises(TypeError):
        x += "1"
    with pytest.raises(TypeError, match="add_: other is None, expected"):
        x.add_(None)
    assert x.tolist() == VALUES


def test_a_leaf_stays_a_leaf():
    w = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    same = w
    (w * weft.tensor([1.0, 1.0, 2.0])).sum().backward()
    with weft.no_grad():
        w -= 0.1 * w.grad
    assert w is same and w.requires_grad and w.is_leaf
    np.testing.assert_allclose(w.tolist(), [0.9, 1.9, 2.8], rtol=1e-6)
    with pytest.raises(ValueError, match="leaf"):
        w -= 1


def test_gradients_flow_through_changes():
    w = weft.tensor([0.9, 1.9, 2.8], requires_grad=True)
    h = w * 2
    h *= w
    h += 1
    h.sum().backward()
    np.testing.assert_allclose(h.tolist(), [2.62, 8.22, 16.68], rtol=1e-6)
    np.testing.assert_allclose(w.grad.tolist(), [3.6, 7.6, 11.2], rtol=1e-6)
    total = weft.zeros(())
    for _ in range(3):
        total += (w * w).sum()
    w.grad = None
    total.backward()
    np.testing.assert_allclose(w.grad.tolist(), [5.4, 11.4, 16.8], rtol=1e-6)
    y = weft.exp(w)
    y += 1
    with pytest.raises(ValueError, match="was changed in place after forward"):
        y.sum().backward()


def _trained_by_hand(model, x, steps=3):
    for _ in range(steps):
        (model(x) ** 2).sum().backward()
        with weft.no_grad():
            for p in model.parameters():
                before = p
                p -= 0.01 * p.grad
                assert p is before
        model.zero_grad()


def _model():
    weft.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    model.materialize()
    return model


def test_parameters_are_trained_by_hand():
    weft.manual_seed(1)
    x = weft.randn(6, 5)
    model, other = _model(), _model()
    _trained_by_hand(model, x)
    optimizer = weft.optim.SGD(other, lr=0.01, momentum=0.0)
    for _ in range(3):
        (other(x) ** 2).sum().backward()
        optimizer.step()
        other.zero_grad()
    for p, q in zip(model.parameters(), other.parameters()):
        np.testing.assert_allclose(p.data.numpy(), q.data.numpy(), rtol=1e-5, atol=1e-7)
        assert p.requires_grad


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("strategy", ["full_shard", "ddp"])
def test_sharded_parameters_are_trained_by_hand(ranks, strategy):
    weft.manual_seed(1)
    x = weft.randn(6, 5)
    model = _model()
    _trained_by_hand(model, x)
    expected = [p.data.numpy() for p in model.parameters()]

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": ranks})
        sharded = _model()
        weft.fully_shard(sharded, mesh, strategy=strategy)
        _trained_by_hand(sharded, weft.distribute(x, mesh, [Shard(0)]))
        return [p.data.full_tensor().numpy() for p in sharded.parameters()]

    for found in weft.run_ranks(ranks, body):
        for a, b in zip(found, expected):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_parameters_of_a_tensor_parallel_model():
    def body(world):
        mesh = weft.DeviceMesh(world, {"tp": 3})
        model = _model()
        weft.parallelize(model, mesh, {"0": weft.Colwise(), "2": weft.Rowwise()})
        before = [p.data.full_tensor().numpy().copy() for p in model.parameters()]
        with weft.no_grad():
            for p in model.parameters():
                placements = p.data.placements
                p *= 2
                p += weft.distribute(weft.ones(()), mesh)
                assert p.data.placements == placements
        return before, [p.data.full_tensor().numpy() for p in model.parameters()]

    for before, after in weft.run_ranks(3, body):
        for a, b in zip(before, after):
            np.testing.assert_allclose(2 * a + 1, b, rtol=1e-6)


def test_members_data_and_grad_of_modules():
    model = _model()
    weight = model[0].weight
    with weft.no_grad():
        weight.fill_(1)
        model[0].weight *= 3
        weight[0] = 5
        weight[1] += 1
        weight.data += 1
    assert model[0].weight is weight
    assert [row[0] for row in weight.data.tolist()] == [6, 5, 4, 4, 4, 4, 4]
    (model(weft.ones(1, 5)) * 0.5).sum().backward()
    grad = weight.grad.tolist()
    weight.grad *= 2
    assert weight.grad.tolist() == [[2 * g for g in row] for row in grad]
    weight.grad = None
    assert weight.grad is None
    weight.data = weft.zeros(7, 5)
    assert weight.data.tolist() == [[0] * 5] * 7 and weight.requires_grad


def test_sharded_tensors_keep_their_layout():
    def body(world):
        mesh = weft.DeviceMesh(world, {"x": 3})
        found = []
        for target in (Shard(0), Shard(1), Replicate()):
            for addend in (Shard(0), Shard(1), Replicate(), Partial()):
                a = weft.distribute(weft.ones(5, 7), mesh, [target])
                b = weft.distribute(weft.ones(5, 7), mesh, [Replicate()])
                b = b.redistribute([addend])
                a += b
                a -= 0.5
                found.append((a.placements == (target,), set(a.full_tensor().numpy().ravel())))
        return found

    assert weft.run_ranks(3, body) == [[(True, {1.5})] * 12] * 3


# Results in separate memory, as torch.cat([x]), torch.roll(x, 0), x.repeat(1), ... are.
APART = {
    "cat": lambda x: weft.cat([x]),
    "concat": lambda x: weft.concat([x]),
    "concat flat": lambda x: weft.concat([x], axis=None),
    "stack": lambda x: weft.stack([x]),
    "astype": lambda x: weft.astype(x, x.dtype),
    "method astype": lambda x: x.astype(x.dtype),
    "clone": lambda x: x.clone(),
    "roll": lambda x: weft.roll(x, 0),
    "roll twice": lambda x: weft.roll(x, (1, 2), axis=(0, 0)),
    "repeat": lambda x: weft.repeat(x, 1),
    "tile": lambda x: weft.tile(x, 1),
    "clip": lambda x: weft.clip(x),
    "diff": lambda x: weft.diff(x, n=0),
    "pad": lambda x: weft.pad(x, 0, 0, 0),
    "floor": lambda x: weft.floor(x),
    "ceil": lambda x: weft.ceil(x),
    "trunc": lambda x: weft.trunc(x),
    "round": lambda x: weft.round(x),
    "reshape": lambda x: weft.reshape(x, (3,), copy=True),
}


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_results_are_apart_from_their_operand(name, dtype):
    x = weft.tensor([1, 2, 3], dtype=dtype)
    y = APART[name](x)
    y += 1
    assert x.tolist() == [1, 2, 3]
    assert name == "roll twice" or y.tolist() == weft.reshape(x + 1, y.shape).tolist()


@pytest.mark.parametrize("name", ["positive", "to", "contiguous", "astype without a copy"])
def test_these_return_their_operand_as_pytorchs_do(name):
    x = weft.tensor([1.0, 2.0])
    y = {
        "positive": lambda: weft.positive(x),
        "to": lambda: x.to(x.dtype),
        "contiguous": lambda: x.contiguous(),
        "astype without a copy": lambda: weft.astype(x, x.dtype, copy=False),
    }[name]()
    y += 1
    assert x.tolist() == [2, 3]


def test_bounds_of_clamp_and_alpha():
    x = _vector()
    with pytest.raises(ValueError, match="clamp_: neither min nor max is given"):
        x.clamp_()
    with pytest.raises(ValueError, match="minimum_: operand 1 is"):
        x.clamp_(0, weft.ones(2, 3))  # refused before min is applied
    with pytest.raises(TypeError, match="alpha is a tensor, expected a number"):
        x.add_(1, alpha=weft.ones(()))
    integers = weft.arange(3)
    with pytest.raises(ValueError, match=r"alpha is .*, expected one of 64 bits"):
        integers.add_(2**40, alpha=2**40)
    assert x.tolist() == VALUES and integers.tolist() == [0, 1, 2]


def test_elements_of_results_are_assigned():
    w = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = w * 2
    y[0:2] *= 3
    y[2] = w[0] * w[1]
    y.sum().backward()
    assert y.tolist() == [6, 12, 2]
    assert w.grad.tolist() == [6 + 2, 6 + 1, 0]
    buffer = weft.zeros(3)
    buffer[1:] = w[1:]
    w.grad = None
    (buffer * buffer).sum().backward()
    assert w.grad.tolist() == [0, 4, 6]
    with pytest.raises(ValueError, match="is a leaf that requires a gradient"):
        w[0] = 1
    with pytest.raises(ValueError, match="is a leaf that requires a gradient"):
        w[:2] *= 2
    assert w.tolist() == [1, 2, 3]


def test_elements_of_sharded_results_are_assigned():
    def body(world):
        mesh = weft.DeviceMesh(world, {"x": 2})
        w = weft.distribute(weft.ones(4, 3), mesh, [Shard(0)]).detach().requires_grad_()
        y = w * 2
        y[:, 1:] *= 3
        y[:, 0] = 5
        y.sum().backward()
        return y.full_tensor().tolist()[3], w.grad.full_tensor().tolist()[0]

    assert weft.run_ranks(2, body) == [([5, 6, 6], [0, 6, 6])] * 2


def test_changes_of_leaves_are_refused_through_all_views():
    def body(world):
        mesh = weft.DeviceMesh(world, {"x": 2})
        x = weft.distribute(weft.ones(4), mesh, [Replicate()])
        part = x.redistribute([Shard(0)])
        part.detach().reshape(2, 2).add_(1)
        w = weft.distribute(weft.ones(4), mesh, [Replicate()]).requires_grad_()
        whole, own = w.full_tensor(), w.to_local(grad_placements=[Replicate()])
        for view in (whole, own):
            with pytest.raises(ValueError, match="or a view of one"):
                view.mul_(2)
        return x.local().tolist(), w.detach().full_tensor().tolist()

    assert weft.run_ranks(2, body) == [([1.0] * 4, [1.0] * 4)] * 2


class _Changing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(weft.ones(4, 4))

    def forward(self, x):
        with weft.no_grad():
            used = self.weight.tensor()
            used *= 2
        return x @ self.weight


def test_the_gathered_copy_of_a_parameter_is_not_changed():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        model = _Changing()
        weft.fully_shard(model, mesh)
        model.materialize()
        with pytest.raises(ValueError, match="mul_: the tensor .* is a parameter gathered for"):
            model(weft.distribute(weft.ones(2, 4), mesh, [Shard(0)]))
        return True

    assert weft.run_ranks(2, body) == [True, True]
