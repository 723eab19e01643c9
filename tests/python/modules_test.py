# SPDX-License-Identifier: Apache-2.0
"""Modules written in Python, optimizers, sharding, hooks, and custom ops."""

import gc
import weakref

import numpy as np
import pytest
import weft
from weft import nn, optim


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(32, 5)
        self.scale = nn.Parameter(weft.ones((5,)))

    def forward(self, x):
        return self.net2(self.relu(self.net1(x))) * self.scale


def losses_of(world, axes, shard, steps=5):
    """The losses of an MLP that learns fixed numbers; `shard(model, mesh)` shards it."""
    mesh = weft.DeviceMesh(world, axes)
    model = MLP()
    shard(model, mesh)
    model.materialize()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    rows = {"dp": weft.Shard(0)}
    x = weft.distribute(weft.randn((8, 10)), mesh, rows)
    y = weft.distribute(weft.randn((8, 5)), mesh, rows)
    losses = []
    for _ in range(steps):
        loss = weft.mean(weft.square(model(x) - y))
        loss.backward()
        weft.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.full_tensor().item())
    return losses


def fsdp(model, mesh):
    weft.fully_shard(model.net1, mesh["dp"])
    weft.fully_shard(model, mesh["dp"])


def fsdp_over_tp(model, mesh):
    plan = {
        "net1": weft.Colwise(),
        "net2": weft.Rowwise(),
    }
    weft.parallelize(model, mesh["tp"], plan)
    weft.fully_shard(model, mesh["dp"])


def test_sharded_training_is_that_of_one_rank():
    expected = weft.run_ranks(1, lambda w: losses_of(w, {"dp": 1}, fsdp))[0]
    assert expected[-1] < expected[0]
    for ranks, axes, shard in [(3, {"dp": 3}, fsdp), (4, {"dp": 2, "tp": 2}, fsdp_over_tp)]:
        for losses in weft.run_ranks(ranks, lambda w: losses_of(w, axes, shard)):
            np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_products_in_parts_are_whole_products():
    def results_of(world, parts):
        mesh = weft.DeviceMesh(world, {"tp": world.size})
        weft.manual_seed(3)
        model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 6))
        plan = {
            "0": weft.Colwise(parts=parts),
            "1": weft.Rowwise(output_layouts=weft.Shard(1), parts=parts),
        }
        weft.parallelize(model, mesh["tp"], plan)
        model.materialize()
        rows = weft.distribute(weft.randn((2, 5, 6)), mesh, {"tp": weft.Shard(1)})
        rows.requires_grad_()
        y = model(rows)
        weft.sum(weft.square(y)).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        return [t.full_tensor().numpy() for t in (y.detach(), rows.grad, *gradients)]

    for ranks in (2, 3):
        whole = weft.run_ranks(ranks, lambda world: results_of(world, 1))[0]
        split = weft.run_ranks(ranks, lambda world: results_of(world, 4))[0]
        for a, b in zip(split, whole):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_names_reprs_and_attributes():
    model = MLP()
    names = [name for name, _ in model.named_parameters()]
    assert names == ["scale", "net1.weight", "net1.bias", "net2.weight", "net2.bias"]
    assert model.parameters().named[1][0] == "net1.weight"
    assert "(net1): Linear(weight: (32, 10), bias: (32,))" in repr(model)
    assert model.net1.weight.shape == (32, 10)
    assert not model.net1.weight.is_materialized
    with pytest.raises(AttributeError, match="MLP has no attribute 'net3'"):
        model.net3
    with pytest.raises(ValueError, match='the module has no child "net9"'):
        model.get_submodule("net9.weight")
    assert [type(m).__name__ for m in model.modules()] == ["MLP", "Linear", "ReLU", "Linear"]


def test_gradients_are_numpys():
    model = nn.Linear(3, 2)
    model.materialize()
    x = weft.randn((4, 3)).requires_grad_()
    weft.sum(weft.square(model(x))).backward()
    weight, bias = model.weight.data.numpy(), model.bias.data.numpy()
    values = x.detach().numpy()
    out = values @ weight.T + bias
    np.testing.assert_allclose(model.weight.grad.numpy(), 2 * out.T @ values, rtol=1e-5)
    np.testing.assert_allclose(model.bias.grad.numpy(), 2 * out.sum(0), rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), 2 * out @ weight, rtol=1e-5)


def test_hooks_see_and_change_what_passes():
    model = MLP()
    model.materialize()
    seen = []
    model.register_forward_pre_hook(lambda module, inputs: inputs[0] * 0)
    model.register_forward_hook(lambda module, inputs, out: seen.append((module, inputs, out)))
    model.net1.add_hooks(after=lambda out: out + 1)
    out = model(weft.ones((2, 10)))
    expected = model.net2(weft.relu(model.net1.bias.tensor() + 1).reshape(1, 32)) * model.scale
    np.testing.assert_allclose(out[0:1].detach().numpy(), expected.detach().numpy(), rtol=1e-5)
    assert seen[0][0] is model and seen[0][1][0].sum().item() == 0


def test_a_module_without_forward_and_wrong_results_are_told():
    class Nothing(nn.Module):
        pass

    class Number(nn.Module):
        def forward(self, x):
            return 3

    with pytest.raises(ValueError, match=r"Nothing has no forward, expected"):
        Nothing()(weft.ones((1,)))
    with pytest.raises(TypeError, match="Number: forward: it returned a int, expected Tensors"):
        Number()(weft.ones((1,)))
    with pytest.raises(TypeError, match="module: argument 0 is a list, expected a weft.Tensor"):
        Number()([1.0])
    with pytest.raises(TypeError, match="module: input 0 is a float, expected a weft.Tensor"):
        nn.Linear(1, 1)(1.0)

    class Fails(nn.Module):
        def forward(self, x):
            raise LookupError("from within")

    with pytest.raises(LookupError, match="from within"):
        Fails()(weft.ones((1,)))


def test_children_live_as_long_as_their_parents_and_no_longer():
    model = nn.Sequential(nn.Linear(3, 3), MLP())
    gc.collect()
    assert type(model[1]).__name__ == "MLP"
    child = weakref.ref(model[1])
    del model
    gc.collect()
    assert child() is None


def test_recompute_gives_equal_gradients():
    def gradients(set_recompute, call):
        weft.manual_seed(3)
        model = MLP()
        model.materialize()
        model.set_recompute(set_recompute)
        weft.mean(weft.square(call(model, weft.ones((4, 10))))).backward()
        return [p.grad.tolist() for p in model.parameters()]

    def plain(model, x):
        return model(x)

    expected = gradients(False, plain)
    assert gradients(True, plain) == expected
    assert gradients(False, weft.recompute) == expected

    def keeping(model, x):
        return weft.recompute(model, x, kept=weft.costly_ops())

    assert gradients(False, keeping) == expected

    class Kept:
        def __init__(self, ops):
            self.ops = ops

        def __call__(self, model, x):
            model.set_recompute(True, kept=self.ops)
            return model(x)

    assert gradients(False, Kept(["linear_bias"])) == expected
    with pytest.raises(ValueError, match='a kept op is "linaer"'):
        gradients(False, Kept(["linaer"]))


def test_no_sync_and_frozen_parameters():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        model = MLP()
        model.net1.requires_grad_(False)
        weft.fully_shard(model, mesh, strategy="zero1")
        model.materialize()
        x = weft.distribute(weft.ones((4, 10)), mesh, [weft.Shard(0)])
        for micro_step in range(3):
            with weft.no_sync(model, micro_step < 2):
                weft.mean(model(x)).backward()
        return model.net1.weight.grad is None, model.net2.weight.grad.placements

    assert weft.run_ranks(2, body)[0] == (True, (weft.Shard(0),))


def test_an_op_of_ones_own_is_sharded_by_its_rule():
    def forward(call, x, w):
        assert call.result_shapes[0] == x.shape
        return np.sinh(x) * w

    def backward(call, gradient):
        x, w = call.operands
        return gradient * weft.cosh(x) * w, gradient * weft.sinh(x)

    op = weft.Op("sinh_scaled", "... d, d -> ... d", forward, backward, linear=[[1]])
    values = np.linspace(-2, 2, 35, dtype=np.float32).reshape(7, 5)
    scale = np.arange(5, dtype=np.float32)

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 3})
        out = []
        for placement in (weft.Shard(0), weft.Shard(1), weft.Replicate()):
            x = weft.distribute(weft.from_numpy(values), mesh, [placement]).requires_grad_()
            w = weft.distribute(weft.from_numpy(scale), mesh).requires_grad_()
            y = op(x, w)
            weft.sum(y).backward()
            out.append([t.full_tensor().detach().numpy() for t in (y, x.grad, w.grad)])
        return out

    for result in weft.run_ranks(3, body)[1]:
        np.testing.assert_allclose(result[0], np.sinh(values) * scale, rtol=1e-5)
        np.testing.assert_allclose(result[1], np.cosh(values) * scale, rtol=1e-5)
        np.testing.assert_allclose(result[2], np.sinh(values).sum(0), rtol=1e-4, atol=1e-5)


def test_ops_of_ones_own_say_what_is_wrong():
    with pytest.raises(ValueError, match="->"):
        weft.Op("wrong", "a b", lambda call, x: x)
    wrong_shape = weft.Op("wrong_shape", "... -> ...", lambda call, x: x[..., :1])
    with pytest.raises(ValueError, match=r"wrong_shape: an array is \[3, 1\], expected \[3, 2\]"):
        wrong_shape(weft.ones((3, 2)))
    with pytest.raises(ValueError, match="has no result"):
        weft.Op("nothing", "d -> ", lambda call, x: x)
    # Forward may keep its argument and return it.
    kept = []
    view = weft.Op("view", "... -> ...", lambda call, x: (kept.append(x), x[::-1])[1])
    assert view(weft.asarray([1.0, 2.0, 3.0])).tolist() == [3.0, 2.0, 1.0]
    assert kept[0].tolist() == [1.0, 2.0, 3.0]
    bf16 = weft.Op("bf16", "... -> ...", lambda call, x: x * 3)
    assert bf16(weft.ones((2,), dtype=weft.bfloat16)).tolist() == [3.0, 3.0]


def test_whole_values_are_sliced_into_a_sharded_model():
    whole = {"weight": weft.randn((5, 3)), "bias": weft.randn((5,))}

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 3})
        model = nn.Linear(3, 5)
        weft.fully_shard(model, mesh)
        model.materialize()
        assert model.load_state_dict(whole).missing == []
        return {name: tensor.full_tensor().tolist() for name, tensor in model.state_dict().items()}

    expected = {name: tensor.tolist() for name, tensor in whole.items()}
    assert weft.run_ranks(3, body) == [expected] * 3


def test_what_is_no_parameter_is_refused():
    with pytest.raises(TypeError, match="item 0 is a str, expected a Parameter"):
        optim.AdamW(["weight"])
    with pytest.raises(ValueError, match="number of trainable parameters is 0"):
        optim.AdamW([{"params": []}])


def test_cycles_of_children_are_refused():
    model = MLP()
    model.later = None
    model.later = nn.Parameter(weft.ones((2,)))
    assert model.later.shape == (2,)
    with pytest.raises(ValueError, match="of the MLP is a MLP that contains it"):
        model.me = model
    with pytest.raises(ValueError, match="of the MLP is a Sequential that contains it"):
        model.net1 = nn.Sequential(model)


def test_a_forward_may_call_itself():
    class Halves(nn.Module):
        def forward(self, x):
            return self(x / 2) if x.sum().item() > 1 else x

    assert Halves()(weft.asarray([8.0])).item() == 1.0


def losses_with(mesh, offload, state):
    weft.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 1))
    weft.fully_shard(model, mesh, offload=offload)
    model.materialize()
    optimizer = optim.AdamW(model, lr=0.05, offload=state)
    x = weft.distribute(weft.arange(24.0).reshape((4, 6)) / 24, mesh, [weft.Shard(0)])
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = ((model(x) - 1) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.full_tensor().item())
    weights = model.state_dict()["0.weight"]
    assert weft.rests_on_disk(weights) == any("parameters=disk" in item for item in offload)
    return losses, weft.in_memory(weights).full_tensor().tolist()


def test_what_rests_on_the_host_trains_the_same():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        with pytest.raises(ValueError, match='offload is "weights"'):
            weft.fully_shard(nn.Linear(2, 2), mesh, offload=["weights"])
        every = losses_with(mesh, ["parameters", "gradients"], True)
        return losses_with(mesh, [], False), every

    for plain, every in weft.run_ranks(2, body):
        assert plain == every
        assert plain[0][-1] < plain[0][0]


def test_what_rests_on_disk_trains_the_same(tmp_path):
    disk = f"disk:{tmp_path}"

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        with pytest.raises(ValueError, match='tier is "tape"'):
            weft.fully_shard(nn.Linear(2, 2), mesh, offload=["gradients=tape"])
        every = losses_with(mesh, [f"parameters={disk}", f"gradients={disk}"], disk)
        return losses_with(mesh, [], False), every

    for ranks in (1, 2, 3):
        for plain, every in weft.run_ranks(ranks, body):
            assert plain == every
            assert plain[0][-1] < plain[0][0]
    assert not list(tmp_path.iterdir())


def test_gradients_in_memory_of_others_are_copied():
    constant = np.array([3.0, 4.0], dtype="float32")
    op = weft.Op("constant_gradient", "... a -> ... a", lambda call, x: x,
                 lambda call, g: weft.from_numpy(constant))
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    (op(x) + op(x)).sum().backward()
    assert x.grad.tolist() == [6, 8]
    parameter = nn.Parameter(weft.tensor([1.0, 2.0]))
    for _ in range(2):
        op(parameter).sum().backward()
        assert weft.clip_grad_norm_([parameter], 1.0) == pytest.approx(5)
        parameter.clear_grad()
    assert constant.tolist() == [3, 4]


def test_a_value_that_is_set_is_no_leaf_by_that():
    given = weft.ones((2, 2))
    a, b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    a.weight.set_value(given)
    b.weight.set_value(given)
    (a(weft.ones((1, 2))).sum() + 10 * b(weft.ones((1, 2))).sum()).backward()
    assert not given.requires_grad
    assert a.weight.grad.tolist() == [[1, 1]] * 2 and b.weight.grad.tolist() == [[10, 10]] * 2
    teacher = nn.Linear(2, 2, bias=False)
    teacher.weight.set_value(a.weight.tensor())
    a(weft.ones((1, 2))).sum().backward()
    assert a.weight.grad.tolist() == [[2, 2]] * 2


def test_parameters_of_views_are_updated():
    values = weft.tensor(np.arange(12, dtype="float32").reshape(3, 4))
    p, q = nn.Parameter(values.T), nn.Parameter(weft.ones((2,)))
    optimizer = optim.SGD([q, p], lr=1.0)
    ((p * weft.ones((4, 3))).sum() + q.sum()).backward()
    optimizer.step()
    assert p.data.tolist() == (np.arange(12).reshape(3, 4).T - 1).tolist()
    assert values.tolist()[0] == [0, 1, 2, 3]


def test_writes_that_would_lose_a_gradient_are_refused():
    w = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = weft.zeros(3)
    with pytest.raises(ValueError, match="is copied requires a gradient"):
        x.copy_(w * w)
    with pytest.raises(ValueError, match="fill_.*requires a gradient"):
        (w * 2).fill_(3)
    x[0] = (w * w).sum().detach()
    assert x.tolist() == [14, 0, 0]


@pytest.mark.parametrize("kind", ["recomputed", "sharded"])
def test_recomputed_and_sharded_modules_may_return_integers(kind):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 3, bias=False)
        def forward(self, x):
            y = self.linear(x)
            return y, weft.argmax(y.detach(), -1)
    module = Both()
    x = weft.ones((4, 2))
    if kind == "sharded":
        mesh = weft.DeviceMesh(weft.connect(), {"dp": 1})
        weft.fully_shard(module, mesh)
        x = weft.distribute(x, mesh, [weft.Shard(0)])
    module.materialize()
    module.set_recompute(kind == "recomputed")
    y, greatest = module(x)
    assert y.requires_grad and not greatest.requires_grad
    assert greatest.full_tensor().numpy().shape == (4,)
    y.sum().backward()
    assert module.linear.weight.grad.full_tensor().tolist() == [[4, 4]] * 3


def test_copies_are_no_part_of_the_graph():
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    assert not weft.tensor(x * 2).requires_grad
    mesh = weft.DeviceMesh(weft.connect(), {"dp": 1})
    assert weft.distribute_tensor(x, mesh, [weft.Shard(0)], src_data_rank=0).requires_grad
    assert not nn.Parameter(weft.tensor([0.0])) and nn.Parameter(weft.tensor(1.0))


def blocks_that_save(mesh, tier, kept):
    weft.manual_seed(2)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(3)])
    for block in (model[0], model[1], model[2]):
        block.set_recompute(True, kept)
        weft.fully_shard(block, mesh, offload=[f"activations={tier}"] if tier else [])
    weft.fully_shard(model, mesh)
    model.materialize()
    x = weft.distribute(weft.arange(32.0 * 12).reshape((12, 32)) / 400, mesh, [weft.Shard(0)])
    ((model(x) - 1) ** 2).mean().backward()
    return [p.grad.full_tensor().tolist() for p in model.parameters()]


def test_saved_activations_on_disk_give_the_same_gradients(tmp_path):
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        for kept in ([], weft.costly_ops()):
            assert blocks_that_save(mesh, f"disk:{tmp_path}", kept) == blocks_that_save(
                mesh, "", kept
            )

    for ranks in (1, 2, 3):
        weft.run_ranks(ranks, body)
    x = weft.ones((1000,))
    x.requires_grad = True
    y = weft.recompute(lambda a: a.exp(), x.sin(), offload=f"disk:{tmp_path}")
    y.sum().backward()
    assert x.grad.shape == (1000,)
    with pytest.raises(ValueError, match='recompute: offload: tier is "tape"'):
        weft.recompute(lambda a: a.exp(), x, offload="tape")
    nn.Linear(2, 2).offload_activations(True)
    assert list(tmp_path.iterdir()) == []


def planned_model(mesh, device):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)])
    blocks = [model[i] for i in range(4)]

    def micro_step():
        x = weft.distribute(weft.ones((120, 64), device=device), mesh, [weft.Shard(0)])
        (model(x) ** 2).mean().backward()

    return model, blocks, micro_step


def test_a_plan_keeps_a_budget(tmp_path):
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})

        def build(root):
            return planned_model(root, "meta")

        too_little = "plan_memory: budget is 1 bytes, expected at least"
        with pytest.raises(ValueError, match=too_little) as e:
            weft.plan_memory(build, mesh, 1, directory=str(tmp_path))
        least = int(str(e.value).split("at least ")[1].split(",")[0])
        plan = weft.plan_memory(build, mesh, least, directory=str(tmp_path))
        assert plan.peak == plan.allowed == least
        assert len(plan.blocks) == 4
        model, blocks, micro_step = planned_model(mesh, "cpu")
        plan.apply(model, blocks, mesh)
        model.materialize()
        optimizer = optim.AdamW(model, lr=0.05, offload=plan.state)
        for _ in range(2):
            weft.reset_peak_memory()
            optimizer.zero_grad()
            micro_step()
            optimizer.step()
        assert weft.memory_statistics()["total"]["peak"] <= plan.peak, str(plan)
        with pytest.raises(TypeError, match="build returns a int"):
            weft.plan_memory(lambda root: 3, mesh, 1000)

    for ranks in (1, 2):
        weft.run_ranks(ranks, body)


def test_a_block_of_a_transformer_is_a_module_of_its_own():
    config = nn.TransformerConfig(dim=24, layers=2, heads=3, kv_heads=3, ffn=17, vocabulary=11)
    config.causal, config.sinks = False, True
    block, model = nn.transformer_block(config, 1), nn.TransformerModel(config)
    block.materialize(), model.materialize()
    assert tuple(block.self_attn.sinks.shape) == (3,)
    block.load_state_dict(model.blocks()[1].state_dict())
    x = weft.randn((2, 5, 24))
    np.testing.assert_array_equal(block(x).detach().numpy(), model.blocks()[1](x).detach().numpy())
    with pytest.raises(ValueError, match="transformer_block: layer is 2, expected 0 to 1"):
        nn.transformer_block(config, 2)


def test_losses_at_their_edges():
    """Values and gradients of PyTorch."""
    x = weft.tensor([0.0, 0.0, 1.0]).requires_grad_()
    nn.BCEWithLogitsLoss()(x, weft.tensor([1.0, 0.0, 1.0])).backward()
    np.testing.assert_allclose(x.grad.numpy(), [-1 / 6, 1 / 6, -0.0896471], rtol=1e-5)
    logits = weft.tensor([20.0, -1.0]).requires_grad_()
    nn.BCELoss()(weft.sigmoid(logits), weft.tensor([1.0, 0.0])).backward()
    np.testing.assert_allclose(logits.grad.numpy(), [0, 0.1344707], rtol=1e-4)
    scores = weft.tensor([[-np.inf, -0.1], [-1.0, -2.0]])
    assert nn.NLLLoss()(scores, weft.tensor([-100, 1])).item() == 2
