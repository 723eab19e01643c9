# SPDX-License-Identifier: Apache-2.0
"""Hooks around forward: their order, hooks that change hooks or call their module, and handles."""

import gc
import weakref

import pytest
import weft
from weft import nn

ONE = weft.ones((1,))


class Scaled(nn.Module):
    def forward(self, x, k=1.0):
        if k == 0:
            raise LookupError("nothing to scale by")
        return x * k


def test_hooks_run_in_the_order_of_registration():
    model = nn.ReLU()
    model.register_forward_pre_hook(lambda module, inputs: inputs[0] + 1)
    model.register_forward_pre_hook(lambda module, inputs: inputs[0] * 10)
    assert model(ONE).item() == 20
    model.register_forward_hook(lambda module, inputs, out: out + 1)
    model.register_forward_hook(lambda module, inputs, out: out * 10)
    model.add_hooks(after=lambda out: out - 5)
    assert model(ONE).item() == 205


def test_hooks_after_forward_see_what_it_was_given():
    model, seen = nn.ReLU(), []
    model.register_forward_hook(lambda module, inputs, out: seen.append(inputs[0].item()))
    model.register_forward_pre_hook(lambda module, inputs: inputs[0] + 1)
    model(ONE)
    assert seen == [2]


@pytest.mark.parametrize("make", [nn.ReLU, lambda: nn.Sequential(nn.ReLU()), lambda: part()[1]])
def test_hooks_register_hooks(make):
    model, seen = make(), []

    def note(what):
        return lambda module, *passing: seen.append((what, len(passing)))

    def first(module, inputs):
        handle.remove()
        for _ in range(20):
            module.register_forward_pre_hook(note("before"))
        module.register_forward_hook(note("after"))

    handle = model.register_forward_pre_hook(first)
    model.register_forward_pre_hook(note("second"))
    x = weft.ones((1, 64, 256))
    model(x)
    assert seen == [("second", 1), ("after", 2)]
    seen.clear()
    model(x)
    assert seen == [("second", 1)] + [("before", 1)] * 20 + [("after", 2)]


def test_a_sharded_module_is_gathered_around_all_hooks():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        layer, seen = nn.Linear(4, 4), []
        model = nn.Sequential(layer, nn.Linear(4, 4))

        def look(module, *passing):
            with weft.no_grad():
                seen.append(weft.square(module.weight.tensor()).sum().item())

        def add(module, *passing):
            handle.remove()
            module.register_forward_pre_hook(look)

        handle = layer.register_forward_pre_hook(add)
        layer.register_forward_hook(look)
        for module in (*model, model):
            weft.fully_shard(module, mesh)
        layer.register_forward_pre_hook(look)
        layer.register_forward_hook(look)
        model.materialize()
        x = weft.distribute(weft.ones((2, 4)), mesh, [weft.Shard(0)])
        model(x).sum().backward()
        model(x)
        return seen, weft.square(layer.weight.data.full_tensor()).sum().item()

    for seen, expected in weft.run_ranks(2, body):
        assert seen == pytest.approx([expected] * 7)


def part():
    """A Llama and its last norm, whose Python object lives only while it is referenced."""
    llama = nn.TransformerModel("tiny")
    llama.materialize()
    return llama, llama.get_submodule("model.norm")


@pytest.mark.parametrize("make", [lambda: (None, nn.ReLU()), lambda: (None, nn.GELU()), part])
def test_handles_really_remove(make):
    tree, model = make()
    x, seen = weft.ones((1, 1, 256)), []

    def hook(*passing):
        seen.append(passing)

    handles = [
        model.register_forward_hook(hook),
        model.register_forward_pre_hook(hook),
        model.add_hooks(before=hook, after=hook),
    ]
    model(x)
    assert len(seen) == 4
    for handle in handles * 2:
        handle.remove()
    model(x)
    assert len(seen) == 4
    freed = weakref.ref(hook)
    del hook, seen
    gc.collect()
    assert freed() is None
    assert not model.__dict__.get("_hooks")


def test_handles_outlive_their_module():
    model = nn.ReLU()
    handle = model.register_forward_hook(lambda module, inputs, out: None)
    freed = weakref.ref(model)
    del model
    gc.collect()
    assert freed() is None
    handle.remove()


def test_a_forward_that_fails_leaves_no_inputs():
    model = Scaled()
    model.register_forward_hook(lambda module, inputs, out: None)
    before = weft.memory_statistics()["total"]["current"]
    for _ in range(3):
        with pytest.raises(LookupError):
            model(weft.ones((1 << 16,)), k=0)
    gc.collect()
    assert weft.memory_statistics()["total"]["current"] == before


@pytest.mark.parametrize("recompute", [False, True])
def test_arguments_are_those_of_their_call(recompute):
    model, inner = Scaled(), []
    model.set_recompute(recompute)
    within = nn.Sequential(model)

    others = [model, within]

    def call_again(module, inputs):
        if others:
            inner.append(others.pop()(inputs[0]).item())

    model.register_forward_pre_hook(call_again)
    x = ONE.detach().requires_grad_()
    y = model(x, k=3.0)
    assert y.item() == 3 and inner == [1, 1]
    y.backward()
    assert x.grad.item() == 3


class OwnLlama(nn.TransformerModel):
    def forward(self, ids):
        return super().forward(ids) * 2


@pytest.mark.parametrize("make", [nn.TransformerModel, OwnLlama])
def test_a_part_that_is_made_anew_is_handed_to_its_hooks(make):
    llama, seen = make("tiny"), []
    llama.materialize()
    llama.blocks()[0].register_forward_hook(lambda module, inputs, out: seen.append(module))
    norm = llama.get_submodule("model.norm")
    norm.register_forward_pre_hook(lambda module, inputs: seen.append(module))
    gc.collect()
    llama(weft.asarray([[1, 2]]))
    assert [name for name, _ in seen[0].named_children()][:2] == ["self_attn", "mlp"]
    assert seen[1] is norm
    freed = weakref.ref(llama)
    del llama, norm
    seen[:] = seen[:1]
    assert seen[0].get_submodule("mlp").parameters()
    seen.clear()
    gc.collect()
    assert freed() is None


def test_hooks_of_a_parameter_stay_while_it_is_frozen():
    layer = weft.nn.Linear(2, 1, bias=False)
    seen = []
    layer.weight.register_hook(lambda gradient: seen.append("before"))
    layer.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append("after"))
    x = weft.ones((3, 2)).requires_grad_()
    for trainable in (True, False, True):
        layer.weight.requires_grad = trainable
        layer(x).sum().backward()
        seen.append(trainable)
    assert seen == ["before", "after", True, False, "before", "after", True]
