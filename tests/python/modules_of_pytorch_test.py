# SPDX-License-Identifier: Apache-2.0
"""Checks what modules have in PyTorch: buffers, copies, dtypes, initial values, implicit memory."""

import copy
import warnings

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.nn import functional as F


class Averaged(nn.Module):
    """A linear layer whose outputs are scaled by a buffer, which counts calls in another."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("factor", weft.asarray([1.0, 2.0, 3.0]))
        self.register_buffer("calls", weft.zeros(()), persistent=False)
        self.register_buffer("later", None)

    def forward(self, x):
        self.calls += 1
        return self.linear(x) * self.factor


def batch():
    return weft.from_numpy(np.arange(24, dtype=np.float32).reshape(6, 4) / 10)


def test_buffers_are_found_and_saved():
    model = nn.Sequential(Averaged())
    assert [name for name, _ in model.named_buffers()] == ["0.factor", "0.calls"]
    assert len(model.buffers()) == 2 and model[0].later is None
    state = model.state_dict()
    assert list(state) == ["0.linear.weight", "0.linear.bias", "0.factor"]
    state["0.factor"] = weft.asarray([5.0, 6.0, 7.0])
    model.load_state_dict(state)
    assert model[0].factor.tolist() == [5.0, 6.0, 7.0]
    model(batch())
    model(batch())
    assert model[0].calls.item() == 2
    model[0].factor = weft.ones(3)
    assert model[0].factor.tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="'factor' is a buffer.* gets a int, expected"):
        model[0].factor = 3
    with pytest.raises(ValueError, match="name is 'linear', expected one that is new"):
        model[0].register_buffer("linear", weft.ones(1))
    del model[0].factor
    assert not hasattr(model[0], "factor") and len(model[0].buffers()) == 1


def test_buffers_are_replicated_with_a_sharded_module(tmp_path):
    weft.manual_seed(3)
    whole = nn.Sequential(Averaged())
    expected = whole(batch()).detach().numpy()
    state = {name: value.numpy() for name, value in whole.state_dict().items()}

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 3})
        model = nn.Sequential(Averaged())
        weft.fully_shard(model, mesh)
        model.load_state_dict(state)
        out = model(weft.distribute(batch(), mesh, {"dp": weft.Shard(0)}))
        assert model[0].factor.placements == (weft.Replicate(),)
        assert model[0].calls.full_tensor().item() == 1
        saver = weft.CheckpointSaver(world, str(tmp_path))
        state_of_all = weft.TrainingState()
        state_of_all.add("model", model)
        path = saver.save(1, state_of_all)
        world.barrier()
        model[0].factor.zero_()
        weft.load(path, state_of_all)
        return out.full_tensor().tolist(), model[0].factor.full_tensor().tolist()

    for out, factor in weft.run_ranks(3, body):
        np.testing.assert_allclose(out, expected, rtol=1e-6)
        assert factor == [1.0, 2.0, 3.0]


def test_modules_and_optimizers_are_copied_deeply():
    model = nn.Sequential(Averaged(), nn.LayerNorm(3, bias=False), nn.Dropout(0.25), nn.GELU())
    seen = []
    model[0].register_forward_hook(lambda module, given, out: seen.append(module))
    optimizer = optim.AdamW([{"params": model.parameters(), "weight_decay": 0.5}], lr=0.1)
    model(batch()).sum().backward()
    optimizer.step()
    twin, twins_optimizer = copy.deepcopy((model, optimizer))
    assert type(twin[0]) is Averaged and twin[1].eps == model[1].eps and twin[2].p == 0.25
    assert [n for n, _ in twin.named_parameters()] == [n for n, _ in model.named_parameters()]
    for own, other in zip(twin.parameters(), model.parameters()):
        assert own is not other and own.tolist() == other.tolist()
        assert own.grad is None and other.grad is not None
    before = [p.tolist() for p in model.parameters()]
    model.eval()
    twin.eval()
    for _ in range(2):
        optimizer.zero_grad()
        twins_optimizer.zero_grad()
    seen.clear()
    twin(batch()).sum().backward()
    assert seen == [twin[0]]
    twins_optimizer.step()
    assert [p.tolist() for p in model.parameters()] == before
    model(batch()).sum().backward()
    optimizer.step()
    for own, other in zip(twin.parameters(), model.parameters()):
        assert own.tolist() == other.tolist()
    assert twins_optimizer.param_groups[0]["weight_decay"] == 0.5


def test_copies_keep_ties():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
            self.second.weight = self.first.weight

    twin = copy.deepcopy(Tied())
    assert twin.second.weight is twin.first.weight and len(twin.parameters()) == 3
    llama = nn.TransformerModel("tiny")
    assert len(copy.deepcopy(llama).parameters()) == len(llama.parameters())


def test_a_sharded_module_is_not_copied():
    def body(world):
        model = nn.Linear(2, 2)
        weft.fully_shard(model, weft.DeviceMesh(world, {"dp": 2}))
        with pytest.raises(ValueError, match="'Linear' is sharded, expected one before"):
            copy.deepcopy(model)
        with pytest.raises(ValueError, match="fully sharded.*MixedPrecision"):
            model.to(weft.bfloat16)

    weft.run_ranks(2, body)


def test_modules_change_their_dtype():
    model = Averaged().to(weft.bfloat16)
    assert {p.dtype for p in model.parameters()} == {weft.bfloat16}
    assert model.factor.dtype is weft.bfloat16 and model(batch().to(weft.bfloat16)).shape == (6, 3)
    model.double()
    assert model.linear.weight.dtype is weft.float64 and model.factor.dtype is weft.float64
    assert nn.Linear(2, 2, dtype=weft.float16).weight.dtype is weft.float16
    assert nn.Linear(2, 2, device="cpu").weight.is_materialized
    assert not nn.Linear(2, 2).weight.is_materialized
    with pytest.raises(ValueError, match="to: dtype is i64, expected a floating one"):
        model.to(weft.int64)


def test_modules_take_device_and_dtype_of_a_tensor():
    model = nn.Linear(2, 3)
    model.materialize()
    assert model.to(weft.ones(1, dtype=weft.float64)).weight.dtype is weft.float64
    loaded = weft.load_state_dict(model, weft.state_dict(model))
    assert repr(loaded) == "SkippedKeys(missing=[], unexpected=[])"


def test_parameters_get_memory_when_they_are_first_used():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    model(batch()).sum().backward()
    optimizer.step()
    assert all(p.is_materialized for p in model.parameters())
    assert nn.Linear(2, 2).state_dict()["weight"].shape == (2, 2)
    loaded = nn.Linear(2, 2, bias=False)
    loaded.load_state_dict({"weight": weft.ones(2, 2)})
    assert loaded.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    weft.manual_seed(5)
    called = nn.Linear(4, 3)
    called(batch())
    weft.manual_seed(5)
    made = nn.Linear(4, 3)
    made.materialize()
    assert called.weight.tolist() == made.weight.tolist()

    def body(world):
        weft.manual_seed(5)
        sharded = nn.Linear(4, 3)
        mesh = weft.DeviceMesh(world, {"dp": 2})
        weft.fully_shard(sharded, mesh)
        sharded(weft.distribute(batch(), mesh, {"dp": weft.Shard(0)}))
        return sharded.weight.data.full_tensor().tolist()

    assert weft.run_ranks(2, body) == [made.weight.tolist()] * 2


def test_initial_values_are_those_of_pytorch():
    weft.manual_seed(1)
    linear, embedding = nn.Linear(400, 300, device="cpu"), nn.Embedding(300, 400, device="cpu")
    for values in (linear.weight.data.numpy(), linear.bias.data.numpy()):
        assert abs(values).max() <= 1 / 20 and abs(values.std() * 20 * 3**0.5 - 1) < 0.1
    assert abs(embedding.weight.data.numpy().std() - 1) < 0.01
    assert (linear.in_features, linear.out_features) == (400, 300)
    assert (embedding.num_embeddings, embedding.embedding_dim) == (300, 400)
    with_std = nn.Linear(400, 300, std=0.5, device="cpu")
    assert abs(with_std.weight.data.numpy().std() - 0.5) < 0.01
    assert not with_std.bias.data.numpy().any()


def test_layer_norm_may_lack_bias_and_weight():
    x = batch()
    for shape in (4, (4,), [4]):
        norm = nn.LayerNorm(shape, bias=False)
        expected = F.layer_norm(x, (4,)).numpy()
        np.testing.assert_allclose(norm(x).detach().numpy(), expected, rtol=1e-6)
    plain = nn.LayerNorm(4, elementwise_affine=False)
    assert plain.parameters() == [] and plain.normalized_shape == (4,)
    np.testing.assert_allclose(plain(x).detach().numpy(), F.layer_norm(x, (4,)).numpy(), rtol=1e-6)

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        return plain(weft.distribute(x, mesh, {"dp": weft.Shard(0)})).full_tensor().tolist()

    assert weft.run_ranks(2, body)[0] == plain(x).tolist()


def test_modules_are_kept_by_name():
    modules = nn.ModuleDict({"one": nn.Linear(2, 2), "two": nn.ReLU()})
    assert list(modules) == ["one", "two"] and len(modules) == 2 and "one" in modules
    assert modules.one is modules["one"] and [n for n, _ in modules.items()] == ["one", "two"]
    del modules["one"]
    assert "one" not in modules and modules.values() == [modules.two]
    with pytest.raises(KeyError):
        modules["one"]
    assert nn.Identity(3, unused=True)(batch()).shape == (6, 4)


def test_a_module_in_a_list_is_pointed_out():
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(2, 2)]

    with pytest.warns(UserWarning, match="'layers' of the Listed is a list.*nn.ModuleList"):
        Listed()
    child, parent = nn.Linear(2, 2), nn.Module()
    parent.child = child
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        child.above = [parent]


def test_what_factories_make_joins_tensors_over_a_mesh():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        table = weft.distribute(weft.arange(12.0).reshape(6, 2), mesh, {"dp": weft.Shard(0)})
        picked = weft.embedding(table, weft.arange(3) + 1)
        assert (table + weft.tril(weft.ones(6, 6)) @ table).shape == (6, 2)
        changed = weft.zeros(6, 2)
        changed.copy_(weft.from_numpy(np.full((6, 2), float(world.rank))))
        with pytest.raises(ValueError, match="has no mesh"):
            table + changed
        lent = weft.zeros(6, 2)
        lent.numpy()[:] = world.rank
        with pytest.raises(ValueError, match="has no mesh"):
            table + lent
        return picked.full_tensor().tolist()

    assert weft.run_ranks(2, body) == [[[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]] * 2


@pytest.mark.parametrize("make", ["distribute", "full"])
def test_tensors_that_differ_between_ranks_are_caught(make):
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        own = weft.from_numpy(np.full((4, 2), float(world.rank), dtype=np.float32))
        if make == "full":
            x = weft.ones(4, 2, mesh=mesh) * weft.full((4, 2), float(world.rank))
        else:
            x = weft.distribute(own, mesh, {})
        return (x.redistribute([weft.Shard(0)]).sum() * 1).full_tensor().item()

    with pytest.raises(weft.CommError, match=r"called distribute\(f32, \[4, 2\]\).*from_local"):
        weft.run_ranks(2, body)
    weft.run_ranks(2, body, checks_equality=False)
    with pytest.raises(ValueError, match="of rank 1 differs from that of rank 0"):
        weft.run_ranks(2, body, checks_equality=True)
