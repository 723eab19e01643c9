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


def test_a_function_gets_zeros_for_outputs_without_gradient():
    class Two(autograd.Function):
        @staticmethod
        def forward(ctx, x, materialize):
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + (0 if b is None else b * 3), None

    for materialize in (True, False):
        x = numbers(1.0, 2.0).requires_grad_()
        Two.apply(x, materialize)[0].sum().backward()
        assert x.grad.tolist() == [2, 2]

    def body(mesh):
        x = weft.distribute(weft.ones((5,), dtype=F64), mesh, [weft.Shard(0)]).requires_grad_()
        Two.apply(x, True)[1].sum().backward()
        return x.grad.full_tensor().tolist()

    assert on_ranks(body)[0] == [3] * 5


def test_a_function_names_what_was_changed_after_forward():
    x = numbers(1.0, 2.0).requires_grad_()
    y = Cube.apply(x, 2.0).sum()
    with weft.no_grad():
        x.add_(1.0)
    with pytest.raises(ValueError, match=r"saved_tensors: tensor 0 .* was changed in place"):
        y.backward()


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


def test_names_of_pytorch():
    torch = weft.torch
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    y = x * x
    assert x.grad_fn is None and y.grad_fn == "mul"
    y.retain_grad()
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert slope.tolist() == [2, 4] and slope.requires_grad and y.grad.tolist() == [1, 1]
    assert torch.autograd.grad(slope.sum(), [x])[0].tolist() == [2, 2]
    y.grad = None
    assert y.grad is None
    z = x * 2
    assert z.detach_().tolist() == [2, 4] and not z.requires_grad and z.grad_fn is None
    with pytest.raises(ValueError, match="detach_: the tensor .* is a view"):
        y.reshape(2, 1).detach_()


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

        def refuses(leaf):
            raise KeyError("no")

        handle = model[0].weight.register_post_accumulate_grad_hook(refuses)
        with pytest.raises(KeyError):
            model(x).sum().backward()
        handle.remove()
        model(x).sum().backward()
        assert model[2].bias.grad.full_tensor().tolist() == [18]
        return len(seen)

    seen = on_ranks(body)
    assert seen[0] >= 9 and seen == [seen[0]] * 3


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


def penalised_by_parameters(model, x):
    """Gradients of a penalty on those of all parameters, which backward records."""
    model(x).square().mean().backward(create_graph=True)
    slopes = [p.grad for p in model.parameters()]
    for p in model.parameters():
        p.grad = None
    sum(g.to(F64).square().sum() for g in slopes).backward()
    return [g.detach() for g in slopes], [p.grad for p in model.parameters()]


@pytest.mark.parametrize("way", WAYS)
def test_backward_records_gradients_of_sharded_parameters(way):
    options, atol = WAYS[way], 1e-5 if way == "mixed" else 1e-12
    x = weft.asarray(numpy.sin(numpy.arange(24.0)).reshape(6, 4))
    alone = model_of()
    expected = [g for part in penalised_by_parameters(alone, x) for g in part]

    def body(mesh):
        model = model_of()
        weft.fully_shard(model[0], mesh, **options)
        weft.fully_shard(model, mesh, **options)
        seen = []
        dtype = weft.float32 if way == "mixed" else F64
        cut = weft.distribute(x.to(dtype), mesh, [weft.Shard(0)])
        model(cut)
        hook = lambda leaf: seen.append(leaf.grad.shape)
        hooks = [p.register_post_accumulate_grad_hook(hook) for p in model.parameters()]
        found = [g for part in penalised_by_parameters(model, cut) for g in part]
        assert len(seen) == 2 * len(hooks)
        if way == "full_shard":
            model(cut).sum().backward(create_graph=True)
            with pytest.raises(ValueError, match="or by a backward with create_graph, expected"):
                model(cut).sum().backward()
            for p in model.parameters():
                p.grad = None
            assert "backward with create_graph" in weft.explain_schedule(model)
        return [None if g is None else g.full_tensor().numpy() for g in found]

    for found in on_ranks(body):
        for one, other in zip(found, expected):
            if other is None:
                assert one is None or not one.any()
            else:
                numpy.testing.assert_allclose(one, other.numpy(), atol=atol)


def test_a_divisor_of_the_loss_refuses_recorded_gradients():
    def body(mesh):
        model = model_of()
        weft.fully_shard(model, mesh, gradient_divide_factor=4.0)
        x = weft.distribute(weft.ones((6, 4), dtype=F64), mesh, [weft.Shard(0)]).requires_grad_()
        with pytest.raises(ValueError, match="gradient_divide_factor is 4, expected 1 in a"):
            weft.grad(model(x).sum(), x, create_graph=True)
        return True

    assert all(on_ranks(body))


def test_hooks_follow_a_parameter_and_are_refused_where_none_would_run():
    model, seen = nn.Linear(4, 2, dtype=F64), []
    model.weight._at_rest.register_hook(lambda g: seen.append("before"))
    model.weight.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.shape))
    model.materialize()
    model(weft.ones((3, 4), dtype=F64)).sum().backward()
    assert seen == ["before", (2, 4)]

    def body(mesh):
        hooked = nn.Linear(4, 2, dtype=F64)
        hooked.weight._at_rest.register_hook(lambda g: g)
        weft.fully_shard(hooked, mesh)
        x = weft.distribute(weft.ones((3, 4), dtype=F64), mesh, [weft.Shard(0)])
        with pytest.raises(ValueError, match="register_hook: the tensor .* is a sharded parameter"):
            hooked(x)
        return True

    assert all(on_ranks(body))


def test_ops_without_a_gradient_have_reasons():
    without = {op.name: op.gradient_reason for op in weft.all_ops() if op.gradient_reason}
    for name, reason in sorted(without.items()):
        print(f"{name}: {reason}")
    assert 30 <= len(without) <= 45
    assert without["attention_backward"] == (
        "it is the fused gradient of attention, whose definition is differentiated"
    )
    assert without["adamw_"] == "it changes its operands in place"
    assert "nextafter" in without and "floor_divide" not in without
    assert all(op.gradient_order == "any order" for op in weft.all_ops() if op.name not in without)


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


def test_functional_call_that_fails_leaves_a_sharded_module_as_it_was():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 3})
        model, x = model_of(), weft.distribute(weft.ones((3, 4), dtype=F64), mesh)
        weft.fully_shard(model, mesh)
        before = model(x).full_tensor().tolist()
        other = weft.DeviceMesh(world, {"other": 3})
        value = weft.distribute(weft.ones((6,), dtype=F64), other)
        with pytest.raises((ValueError, RuntimeError)):
            autograd.functional_call(model, {"0.bias": value}, x)
        return model(x).full_tensor().tolist() == before

    assert all(weft.run_ranks(3, body))


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
