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
    with pytest.raises(TypeError, match="add_: it takes"):
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
    with pytest.raises(ValueError, match="was changed in place since"):
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
