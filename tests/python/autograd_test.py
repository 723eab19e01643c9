# SPDX-License-Identifier: Apache-2.0
"""weft.autograd: custom functions, hooks, products and matrices of derivatives, other parameters,
and what refuses."""

import gc
import weakref

import numpy
import pytest

import weft
from weft import autograd, nn

F64 = weft.float64


def numbers(*values):
    return weft.asarray(list(values), dtype=F64)


class Cube(autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        y = x**3 * factor
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * 3 * y / x, None


def test_a_function_is_differentiated_by_its_backward():
    def cube(x):
        return Cube.apply(x, 2.0)

    assert autograd.gradcheck(cube, numbers(1.0, -2.0))
    assert autograd.gradgradcheck(cube, numbers(1.0, -2.0))
    x = numbers(1.0, 3.0).requires_grad_()
    assert cube(x).grad_fn == "Cube"
    assert not Cube.apply(x.detach(), 2.0).requires_grad


def test_a_function_does_not_keep_itself():
    x = numbers(1.0).requires_grad_()
    contexts = []

    class Kept(Cube):
        @staticmethod
        def forward(ctx, x, factor):
            contexts.append(weakref.ref(ctx))
            return Cube.forward(ctx, x, factor)

    Kept.apply(x, 1.0).sum()
    gc.collect()
    assert contexts[0]() is None


def test_a_function_that_returns_too_little_is_named():
    class Few(Cube):
        @staticmethod
        def backward(ctx, gradient):
            return gradient

    with pytest.raises(ValueError, match="Few: number of gradients .* is 1, expected 2"):
        Few.apply(numbers(1.0).requires_grad_(), 2.0).sum().backward()
    with pytest.raises(NotImplementedError, match="forward of the Function is missing"):
        autograd.Function.apply(numbers(1.0))


def test_wrong_gradients_are_named():
    class Wrong(Cube):
        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2, None

    with pytest.raises(RuntimeError, match=r"gradcheck: the derivative of output 0\[0\]"):
        autograd.gradcheck(lambda x: Wrong.apply(x, 1.0), numbers(1.0))
    assert not autograd.gradcheck(
        lambda x: Wrong.apply(x, 1.0), numbers(1.0), raise_exception=False
    )


def test_products_and_matrices():
    x = numbers(1.0, 2.0)
    value, along = autograd.jvp(lambda x: x**2, x, numbers(1.0, 0.0))
    assert along.tolist() == [2, 0] and value.tolist() == [1, 4]
    assert autograd.vjp(lambda x: (x**2).sum(), x)[1].tolist() == [2, 4]
    assert autograd.hvp(lambda x: (x**3).sum(), x, numbers(1.0, 1.0))[1].tolist() == [6, 12]
    assert autograd.jacobian(lambda x: x**2, x).tolist() == [[2, 0], [0, 4]]
    rows = autograd.hessian(lambda x, y: (x * y**2).sum(), (x, x))
    assert rows[0][1].tolist() == [[2, 0], [0, 4]] and rows[0][0].tolist() == [[0, 0], [0, 0]]


def test_hooks():
    x = numbers(1.0, 2.0).requires_grad_()
    y = x * 2
    y.retain_grad()
    seen = []
    handle = y.register_hook(lambda g: g * 10)
    x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.tolist()))
    y.sum().backward(retain_graph=True)
    assert seen == [[20, 20]] and y.grad.tolist() == [10, 10]
    handle.remove()
    y.sum().backward()
    assert seen[1] == [22, 22]

    def fails(gradient):
        raise KeyError("no")

    z = x * 3
    z.register_hook(fails)
    with pytest.raises(KeyError):
        z.sum().backward()
    (x * 3).sum().backward()


def model_of(dtype=F64):
    weft.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6, dtype=dtype), nn.Tanh(), nn.Linear(6, 1, dtype=dtype))


def test_backward_of_some_inputs():
    model = model_of()
    loss = model(weft.ones((2, 4), dtype=F64)).sum()
    loss.backward(inputs=[model[0].weight], retain_graph=True)
    assert model[0].weight.grad is not None and model[2].weight.grad is None
    weft.backward(loss, inputs=model[2].weight)
    assert model[2].weight.grad is not None and model[0].bias.grad is None


def on_ranks(body, ranks=3):
    def run(world):
        return body(weft.DeviceMesh(world, {"dp": ranks}))

    return weft.run_ranks(ranks, run)


def test_sharded_parameters_run_post_accumulate_hooks():
    def body(mesh):
        model, seen = model_of(), []
        weft.fully_shard(model[0], mesh)
        weft.fully_shard(model, mesh)
        x = weft.distribute(weft.ones((6, 4), dtype=F64), mesh, [weft.Shard(0)])
        model(x)
        for p in model.parameters():
            p._at_rest.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.shape))
            with pytest.raises(ValueError, match="register_hook: the tensor .* is a sharded"):
                p._at_rest.register_hook(lambda g: g)
        model(x).sum().backward()
        with pytest.raises(ValueError, match="create_graph is true for a sharded parameter"):
            model(x).sum().backward(create_graph=True)
        return len(seen)

    assert on_ranks(body) == [4, 4, 4]


def penalised(model, x):
    (slope,) = weft.grad(model(x).sum(), x, create_graph=True)
    return slope.to(weft.float64).square().sum()


WAYS = {
    **{name: {"strategy": name} for name in ("full_shard", "zero2", "zero1", "ddp")},
    "kept": {"reshard_after_forward": False},
    "offload": {"offload": ["parameters", "gradients"]},
    "mixed": {"mp_policy": weft.MixedPrecision(compute=weft.float32)},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_strategy_differentiates_twice(way):
    options, atol = WAYS[way], 1e-5 if way == "mixed" else 1e-12
    alone = model_of()
    x = weft.ones((6, 4), dtype=F64) * 0.3
    penalised(alone, x.requires_grad_()).backward()
    expected = [p.grad.numpy() for p in alone.parameters() if p.grad is not None]

    def body(mesh):
        model = model_of()
        weft.fully_shard(model[0], mesh, **options)
        weft.fully_shard(model, mesh, **options)
        dtype = weft.float32 if way == "mixed" else F64
        cut = weft.distribute(x.detach().to(dtype), mesh, [weft.Shard(0)]).requires_grad_()
        penalised(model, cut).backward()
        return [p.grad.full_tensor().numpy() for p in model.parameters()]

    for found in on_ranks(body):
        for one, other in zip(found, expected):
            numpy.testing.assert_allclose(one, other, atol=atol)


def test_functional_call_names_what_is_wrong():
    model = model_of()
    x = weft.ones((2, 4), dtype=F64)
    with pytest.raises(ValueError, match='the module has no parameter "no"'):
        autograd.functional_call(model, {"no": x}, x)
    with pytest.raises(ValueError, match=r'parameter "0.bias" is .*, expected'):
        autograd.functional_call(model, {"0.bias": x}, x)
    before = model(x).tolist()
    other = autograd.functional_call(model, {"2.bias": numbers(7.0)}, x)
    assert other.tolist() != before and model(x).tolist() == before
    model[0].set_recompute(True)
    with pytest.raises(ValueError, match="recomputes its forward"):
        autograd.functional_call(model, {}, x)


def test_anomalies_and_shadows_name_the_module():
    class Bad(nn.Module):
        def forward(self, x):
            return (x - x).log()

    model = nn.Sequential(nn.Linear(4, 4, dtype=F64), Bad())
    x = weft.ones((2, 4), dtype=F64)
    with autograd.detect_anomaly(model):
        with pytest.raises(RuntimeError, match='log: .* in forward of module "1", on rank 0'):
            model(x)
    with autograd.shadow(model):
        model[0](x).sum().backward()
    op = weft.Op("doubled", "... -> ...", lambda call, x: 2 * x, lambda call, g: g * 3)
    with autograd.shadow(model):
        with pytest.raises(RuntimeError, match="doubled: the gradient of its operands is off"):
            op(x.requires_grad_()).sum().backward()
