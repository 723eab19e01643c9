# SPDX-License-Identifier: Apache-2.0
"""Gradients of gradients through experts, quantised messages, activations that rest in a tier, and
products that are split for overlap."""

import numpy
import pytest

import weft
from weft import autograd, nn
from weft.nn import MoE, MoEConfig, RouterOptions

F64 = weft.float64


def waves(*shape):
    return weft.asarray(numpy.sin(numpy.arange(float(numpy.prod(shape))) * 0.7).reshape(shape))


def penalised(model, x):
    """The gradients by x and by the parameters of a penalty on the gradient by x."""
    x.requires_grad_()
    (slope,) = weft.grad(model(x).square().sum(), x, create_graph=True)
    slope.to(F64).square().sum().backward()
    # Parameters of modules that compute without them have none on one device, and 0 where sharded.
    return [x.grad, *(p.grad for p in model.parameters())]


def close(found, expected, bound=1e-9):
    for one, other in zip(found, expected, strict=True):
        other = numpy.zeros(1) if other is None else numpy.asarray(other)
        one = numpy.zeros(1) if one is None else numpy.asarray(one.full_tensor())
        numpy.testing.assert_allclose(one, other, atol=bound * max(1, abs(other).max()))


def experts():
    weft.manual_seed(5)
    block = MoE(MoEConfig(dim=6, width=5, experts=5, router=RouterOptions(top_k=3)))
    block.materialize()
    return block.to(F64)


def test_experts_differentiate_twice():
    block = experts()
    assert autograd.gradgradcheck(block, waves(4, 6))


@pytest.mark.parametrize("ranks, axes", [(3, {"ep": 3}), (4, {"dp": 2, "ep": 2})])
def test_experts_over_ranks_differentiate_twice(ranks, axes):
    expected = penalised(experts(), waves(7, 6))

    def body(world):
        mesh, block = weft.DeviceMesh(world, axes), experts()
        weft.parallelize(block, mesh["ep"], {"experts": weft.ExpertParallel()})
        if "dp" in axes:
            weft.fully_shard(block, mesh["dp"])
        x = weft.distribute(waves(7, 6), mesh, [weft.Shard(0)] * mesh.ndim)
        close(penalised(block, x), expected)
        return True

    assert all(weft.run_ranks(ranks, body))


def perceptron():
    weft.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4), nn.Tanh())
    model.materialize()
    return model


@pytest.mark.parametrize(
    "options", [{"quantized_gather": weft.int8}, {"quantized_gradients": weft.int8}]
)
def test_quantised_messages_carry_second_derivatives(options):
    expected = penalised(perceptron(), waves(8, 8).to(weft.float32))

    def body(world):
        mesh, model = weft.DeviceMesh(world, {"dp": 4}), perceptron()
        for layer in (model[0], model[2], model):
            weft.fully_shard(layer, mesh, **options)
        x = weft.distribute(waves(8, 8).to(weft.float32), mesh, [weft.Shard(0)])
        close(penalised(model, x), expected, bound=0.05)
        return True

    assert all(weft.run_ranks(4, body))


@pytest.mark.parametrize("kept", [(), ("linear",)])
def test_activations_in_a_tier_are_brought_back_for_each_backward(kept):
    expected = penalised(perceptron(), waves(8, 8).to(weft.float32))

    def body(world):
        mesh, model = weft.DeviceMesh(world, {"dp": 2}), perceptron()
        for layer in (model[0], model[2]):
            layer.set_recompute(True, list(kept))
        model.offload_activations("host")
        weft.fully_shard(model, mesh)
        x = weft.distribute(waves(8, 8).to(weft.float32), mesh, [weft.Shard(0)])
        close(penalised(model, x), expected, bound=1e-5)
        for p in model.parameters():
            p.grad = None
        # A plain backward after one that records takes what rests there, too.
        y = model(x)
        first = weft.grad(y.sum(), x, create_graph=True)[0]
        y.sum().backward(retain_graph=True)
        (first.sum() + y.sum()).backward()
        return True

    assert all(weft.run_ranks(2, body))


def test_products_in_parts_refuse_by_name():
    config = weft.TransformerConfig(
        dim=8, layers=1, heads=2, kv_heads=2, ffn=8, vocabulary=8, max_sequence=8
    )

    def body(world):
        mesh, model = weft.DeviceMesh(world, {"tp": 2}), weft.TransformerModel(config)
        styles = weft.transformer_styles(config, sequence_parallel=True, parts=2)
        weft.parallelize(model, mesh["tp"], styles)
        ids = weft.distribute(weft.asarray([[1, 2, 3, 4]]), mesh, [weft.Replicate()])
        loss, params = model.loss(ids, ids), [p for _, p in model.named_parameters()]
        named = "has no derivative, expected a backward without create_graph; split products"
        with pytest.raises(ValueError, match=named):
            weft.grad(loss, params, create_graph=True)
        weft.grad(model.loss(ids, ids), params)
        return True

    assert all(weft.run_ranks(2, body))


def slope(x):
    return x.sigmoid() * (1 + x * (1 - x.sigmoid()))


# Gradients of silu(x) that are wrong.
FAULTS = [
    lambda x, g: g,
    lambda x, g: g * x.sigmoid(),
    lambda x, g: -g * slope(x),
    lambda x, g: 1.01 * g * slope(x),
    lambda x, g: g * slope(x) + 0.01,
    lambda x, g: g * slope(-x),
    lambda x, g: weft.zeros_like(g),
    lambda x, g: g * weft.flip(slope(x), (1,)),
    lambda x, g: g * weft.where(x > 0, slope(x), 0.0),
    lambda x, g: slope(x),
]


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_shadow_names_a_planted_fault_in_a_training_step(number):
    fault = FAULTS[number]
    op = weft.Op(
        "planted",
        "... -> ...",
        lambda call, x: x / (1 + numpy.exp(-x)),
        lambda call, g: fault(call.operands[0], g),
    )

    class Planted(nn.Module):
        def forward(self, x):
            return op(x)

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        model = nn.Sequential(nn.Linear(8, 6), Planted(), nn.Linear(6, 4))
        weft.fully_shard(model, mesh)
        optimizer = weft.optim.SGD(model.parameters(), lr=0.1)
        x = weft.distribute(waves(5, 8).to(weft.float32), mesh, [weft.Shard(0)])
        named = 'planted: the gradient of its operands is off by .* of planted of module "1", on'
        with autograd.shadow(model):
            with pytest.raises(RuntimeError, match=named):
                model(x).square().sum().backward()
                optimizer.step()
        return True

    assert all(weft.run_ranks(2, body))
