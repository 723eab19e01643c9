# SPDX-License-Identifier: Apache-2.0
"""Modules written in Python: keyword arguments, replaced members, built-in base classes, and hooks
that refer to their module."""

import gc
import weakref

import numpy as np
import pytest
import weft
from weft import nn


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, mask=None, scale=1.0, *, shift=None, kind="plain"):
        y = self.layer(x) * scale
        if kind == "negative":
            y = -y
        y = y if mask is None else y * mask
        return y if shift is None else y + shift


def made(module, seed=0):
    weft.manual_seed(seed)
    module.materialize()
    return module


def test_arguments_come_by_keyword():
    model = made(Masked())
    x, mask, shift = weft.randn((5, 4)), weft.asarray([1.0, 0.0, 2.0]), weft.ones((3,))
    bias = model.layer.bias.data.numpy()
    plain = x.numpy() @ model.layer.weight.data.numpy().T + bias
    expected = plain * mask.numpy() * 2 + 1
    for call in (
        lambda: model(x, mask, 2.0, shift=shift),
        lambda: model(x=x, mask=mask, scale=2.0, shift=shift),
        lambda: model(shift=shift, scale=2, mask=mask, x=x),
    ):
        np.testing.assert_allclose(call().detach().numpy(), expected, rtol=1e-5, atol=1e-7)
    negative = model(x, mask=None, kind="negative").detach().numpy()
    np.testing.assert_allclose(negative, -plain, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_pass_by_keyword(recompute):
    model = made(Masked())
    model.set_recompute(recompute)
    x = weft.ones((5, 4)).requires_grad_()
    mask = weft.asarray([1.0, 0.0, 2.0]).requires_grad_()
    model(mask=mask, x=x, scale=3.0).sum().backward()
    weight = model.layer.weight.data.numpy()
    row = 3 * mask.detach().numpy() @ weight
    np.testing.assert_allclose(x.grad.numpy(), np.tile(row, (5, 1)), rtol=1e-5)
    rows = 15 * (weight.sum(1) + model.layer.bias.data.numpy())
    np.testing.assert_allclose(mask.grad.numpy(), rows, rtol=1e-5)


def test_hooks_see_the_tensors_in_the_order_of_forward():
    model = made(Masked())
    seen = []
    model.add_hooks(before=lambda *inputs: seen.append([x.shape for x in inputs]))
    model(shift=weft.ones((3,)), mask=weft.zeros((3,)), x=weft.ones((5, 4)))
    assert seen == [[(5, 4), (3,), (3,)]]
    model.add_hooks(before=lambda *inputs: inputs[0])
    with pytest.raises(TypeError, match="of a hook before forward is 1, expected 2"):
        model(weft.ones((5, 4)), mask=weft.ones((3,)))


def test_keywords_within_keywords_and_sequences():
    class Twice(nn.Module):
        def forward(self, x, again=True, *, by=None):
            y = x * by
            return self(y, again=False, by=by) if again else y

    model = Twice()
    assert model(weft.ones((1,)), by=weft.asarray([3.0])).item() == 9.0

    class Plus(nn.Module):
        def forward(self, x, more=None):
            return x + 1 if more is None else x + more

    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.Sequential(Plus(), Plus())

        def forward(self, *, x, more):
            return self.parts(x) + self.parts[0](x, more=more)

    assert Holds()(x=weft.zeros((1,)), more=weft.asarray([5.0])).item() == 7.0


def test_keywords_in_a_sharded_model():
    whole = made(Masked())
    values = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    mask = np.array([1.0, 0.0, 2.0], np.float32)
    expected = whole(weft.from_numpy(values), mask=weft.from_numpy(mask)).detach().numpy()

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 3})
        model = Masked()
        weft.fully_shard(model, mesh)
        made(model)
        x = weft.distribute(weft.from_numpy(values), mesh, [weft.Shard(0)])
        y = model(mask=weft.distribute(weft.from_numpy(mask), mesh), x=x)
        y.sum().backward()
        return y.full_tensor().detach().numpy(), model.layer.weight.grad.placements

    for out, placements in weft.run_ranks(3, body):
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-7)
        assert placements == (weft.Shard(0),)


def test_wrong_arguments_are_told():
    model = made(Masked())
    x = weft.ones((5, 4))
    with pytest.raises(TypeError, match="unexpected keyword argument 'masc'"):
        model(x, masc=x)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        model(mask=x)
    with pytest.raises(TypeError, match="argument 1 is a list, expected a weft.Tensor, None"):
        model(x, mask=[x])
    with pytest.raises(TypeError, match="Linear: tensors are given by name, expected by position"):
        model.layer(x=x)


def test_members_are_exchanged():
    model = made(Masked())
    names = lambda: [name for name, _ in model.named_parameters()]
    model.layer = made(nn.Linear(4, 3, bias=False), seed=1)
    assert names() == ["layer.weight"]
    x = weft.ones((2, 4))
    expected = x.numpy() @ model.layer.weight.data.numpy().T
    np.testing.assert_allclose(model(x).detach().numpy(), expected, rtol=1e-5)
    model.extra = nn.Parameter(weft.ones((2,)))
    model.other = nn.ReLU()
    model.extra = nn.Parameter(weft.zeros((3, 3)))
    assert names() == ["extra", "layer.weight"] and model.extra.shape == (3, 3)
    assert [name for name, _ in model.named_children()] == ["layer", "other"]
    model.layer = nn.GELU()
    assert [name for name, _ in model.named_children()] == ["layer", "other"]
    model.other = nn.Parameter(weft.ones((1,)))
    assert names() == ["extra", "other"] and isinstance(model.other, nn.Parameter)
    model.extra = None
    assert model.extra is None and names() == ["other"]
    del model.other, model.layer
    assert names() == [] and model.children() == [] and not hasattr(model, "layer")
    with pytest.raises(AttributeError):
        del model.layer


def test_members_of_built_in_modules():
    linear = nn.Linear(2, 3)
    linear.weight = nn.Parameter(weft.ones((3, 2)))
    linear.bias = nn.Parameter(weft.zeros((3,)))
    assert linear(weft.ones((1, 2))).tolist() == [[2.0, 2.0, 2.0]]
    with pytest.raises(ValueError, match=r'"weight" is \[2, 2\], expected \[3, 2\]'):
        linear.weight = nn.Parameter(weft.ones((2, 2)))
    with pytest.raises(ValueError, match="'bias' is a parameter of the Linear.*keeps its members"):
        linear.bias = None
    both = nn.Sequential(nn.ReLU(), linear)
    both[0] = nn.Sigmoid()
    assert both(weft.zeros((1, 2))).tolist() == [[1.0, 1.0, 1.0]]
    both[-1] = nn.ReLU()
    assert [type(child).__name__ for child in both.children()] == ["Sigmoid", "ReLU"]
    some = nn.ModuleList([nn.ReLU(), nn.ReLU()])
    some[1] = linear
    assert some[1] is linear and len(some) == 2
    llama = nn.TransformerModel("tiny")
    with pytest.raises(ValueError, match="'lm_head' is a module of the TransformerModel and gets"):
        llama.lm_head = nn.Linear(2, 2)
    with pytest.raises(AttributeError, match="expected one made in Python, for attribute 'note'"):
        llama.blocks()[0].note = 3
    model = Masked()
    model.scale = nn.Parameter(weft.ones((1,)))
    with pytest.raises(ValueError, match="gets a Tensor, expected a Parameter or None"):
        model.scale = weft.ones((1,))
    with pytest.raises(ValueError, match="gets a int, expected a Module or None"):
        model.layer = 3


@pytest.mark.parametrize(
    "base, arguments, shape",
    [
        (nn.Linear, (4, 3), (5, 4)),
        (nn.RMSNorm, (4,), (5, 4)),
        (nn.LayerNorm, (4,), (5, 4)),
        (nn.Dropout, (0.0,), (5, 4)),
        (nn.Sequential, (nn.ReLU(), nn.Sigmoid()), (5, 4)),
    ],
)
def test_built_in_classes_are_derived_from(base, arguments, shape):
    class Doubled(base):
        def __init__(self, *given):
            super().__init__(*given)
            self.calls = 0
            self.gain = nn.Parameter(weft.asarray([2.0]))

        def forward(self, x, *, times=1):
            self.calls += 1
            return super().forward(x) * self.gain * times

    class Kept(base):
        pass

    x = weft.randn(shape)
    expected = made(base(*arguments))(x).detach().numpy()
    model = made(Doubled(*arguments))
    for module, factor in ((model, 2), (nn.Sequential(model), 2), (made(Kept(*arguments)), 1)):
        np.testing.assert_allclose(module(x).detach().numpy(), expected * factor, rtol=1e-6)
    np.testing.assert_allclose(model(x, times=3).detach().numpy(), expected * 6, rtol=1e-6)
    assert model.calls == 3
    model.set_recompute()
    weft.square(model(x)).sum().backward()
    np.testing.assert_allclose(model.gain.grad.item(), 4 * (expected**2).sum(), rtol=1e-4)


def test_embeddings_and_llamas_are_derived_from():
    class Scaled(nn.Embedding):
        def forward(self, ids):
            return super().forward(ids) * 3

    ids = weft.asarray([[1, 0]])
    table = made(Scaled(4, 2))
    np.testing.assert_allclose(
        table(ids).detach().numpy(), 3 * table.weight.data.numpy()[[[1, 0]]], rtol=1e-6
    )

    class Sharp(nn.TransformerModel):
        def forward(self, ids):
            return super().forward(ids) * 2

    plain, sharp = made(nn.TransformerModel("tiny")), made(Sharp("tiny"))
    np.testing.assert_allclose(
        sharp(ids).detach().numpy(), 2 * plain(ids).detach().numpy(), rtol=1e-5, atol=1e-6
    )


def test_derived_layers_are_sharded_as_their_base():
    class Scaled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 3

    values = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    expected = made(Scaled(5, 7))(weft.from_numpy(values)).detach().numpy()

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 1, "tp": 3})
        model = nn.Sequential(Scaled(5, 7))
        weft.parallelize(model, mesh["tp"], {"0": weft.Colwise()})
        made(model)
        out = model(weft.distribute(weft.from_numpy(values), mesh))
        return out.placements[1], out.full_tensor().detach().numpy()

    for placement, out in weft.run_ranks(3, body):
        assert placement == weft.Shard(1)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_a_forward_that_is_set_on_the_module_is_its_own():
    class Own(nn.Linear):
        pass

    model = made(Own(2, 2))
    model.forward = lambda x: x * 7
    assert model(weft.ones((1, 2))).tolist() == [[7.0, 7.0]]


def test_an_init_that_forgets_its_base_is_told():
    class Forgets(nn.Module):
        def __init__(self):
            self.layer = nn.Linear(2, 2)

    with pytest.raises(TypeError, match=r"__init__"):
        Forgets()


def is_freed(make):
    """Returns True when the result of `make`, with all that refers to it, is freed
    automatically."""
    freed = weakref.ref(make())
    gc.collect()
    return freed() is None


def test_hooks_that_hold_their_module_are_freed_with_it():
    def held_by_hook(module, at=lambda module: module):
        at(module).add_hooks(after=lambda out: None if module else None)
        return module

    def by_method():
        class Counts(nn.Module):
            def forward(self, x):
                return x

            def count(self, *outputs):
                self.seen = outputs

        module = Counts()
        module.add_hooks(before=module.count, after=module.count)
        module(weft.ones((1,)))
        return module

    assert is_freed(by_method)
    assert is_freed(lambda: held_by_hook(nn.Linear(2, 2)))
    assert is_freed(lambda: held_by_hook(Masked()))
    assert is_freed(lambda: held_by_hook(Masked(), lambda m: m.layer))
    assert is_freed(lambda: held_by_hook(nn.Sequential(nn.Sequential(Masked())), lambda m: m[0][0]))
    assert is_freed(lambda: held_by_hook(nn.ModuleList([nn.ReLU()]), lambda m: m[0]))

    def held_from_above():
        parent, child = Masked(), nn.ReLU()
        parent.child = child
        child.above = [parent]
        return parent

    assert is_freed(held_from_above)


def test_the_collector_may_come_at_any_time():
    """The collector runs while modules are made, changed and called; also in ranks' threads."""

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        model = nn.Sequential(Masked(), nn.ModuleList([nn.Linear(2, 2)]), nn.ReLU())
        model[1] = nn.Sequential(nn.RMSNorm(3))
        model[0].add_hooks(after=lambda out, model=model: None)
        weft.fully_shard(model, mesh)
        made(model)
        x = weft.ones((4, 4), mesh=mesh, placements=[weft.Shard(0)])
        model(x).sum().backward()
        model[0].layer = nn.Linear(4, 3)
        return weakref.ref(model)

    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(5):
            refs = weft.run_ranks(2, body)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


def test_hooks_that_are_in_use_are_kept():
    calls = []
    model = nn.Sequential(Masked(), nn.ReLU())
    model[0].add_hooks(after=lambda out, model=model: calls.append(len(model)))
    child = model[0]
    made(model)
    del model
    gc.collect()
    child(weft.ones((1, 4)))
    assert calls == [2]
    llama = made(nn.TransformerModel("tiny"))
    llama.blocks()[0].add_hooks(after=lambda out: calls.append("block"))
    gc.collect()
    llama(weft.asarray([[1, 2]]))
    assert calls == [2, "block"]


def test_hooks_are_taken_away():
    model, calls = nn.ReLU(), []
    before = model.register_forward_pre_hook(lambda module, inputs: calls.append("before"))
    after = model.register_forward_hook(lambda module, inputs, out: out * 2)
    assert model(weft.ones((1,))).item() == 2.0 and calls == ["before"]
    before.remove()
    after.remove()
    assert model(weft.ones((1,))).item() == 1.0 and calls == ["before"]
