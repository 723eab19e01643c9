# SPDX-License-Identifier: Apache-2.0
"""Every public method of PyTorch's FSDPModule has its effect, or raises with the alternative."""

import copy
import gc
import pathlib
import weakref

import numpy as np
import pytest

import weft
from weft import nn

NAMES = pathlib.Path(__file__).with_name("fsdp_module_names.txt").read_text().split()
RANKS = 2


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.second = nn.Linear(5, 5)

    def forward(self, x):
        return weft.tanh(self.second(weft.tanh(self.first(x))))

    def twice(self, x, scale=2.0):
        """A forward of another name."""
        return weft.tanh(self.second(weft.tanh(self.first(x)))) * scale


def rows(mesh=None, step=0):
    whole = weft.asarray(np.sin(np.arange(35.0) + 10 * step).astype(np.float32).reshape(7, 5))
    return whole if mesh is None else weft.distribute(whole, mesh, [weft.Shard(0)])


def plain(steps):
    """The gradients of a model that is not sharded, after so many backwards."""
    weft.manual_seed(3)
    model = Chain()
    for step in range(steps):
        weft.sum(weft.square(model(rows(step=step)))).backward()
    return [p.grad.numpy() for p in model.parameters()]


def sharded(world, **options):
    weft.manual_seed(3)
    mesh = weft.DeviceMesh(world, {"dp": world.size})
    model = Chain()
    for part in (model.first, model.second, model):
        weft.fully_shard(part, mesh, **options)
    model.materialize()
    return model, mesh


def backward(model, mesh, step=0):
    weft.sum(weft.square(model(rows(mesh, step)))).backward()


def assert_gradients(model, expected):
    for p, one in zip(model.parameters(), expected):
        np.testing.assert_allclose(p.grad.full_tensor().numpy(), one, atol=1e-5)


def is_whole(module):
    """True when the module's parameters can be read."""
    try:
        module.weight.tensor().detach().to_local().tolist()
    except RuntimeError:
        return False
    return True


def unshard(model, mesh):
    assert model.first.unshard() is None and is_whole(model.first)
    handle = model.second.unshard(async_op=True)
    handle.wait()
    assert is_whole(model.second)
    backward(model, mesh)
    assert_gradients(model, plain(1))


def reshard(model, mesh):
    model.first.unshard()
    model.first.reshard()
    assert not is_whole(model.first)


def set_requires_gradient_sync(model, mesh):
    for step in range(2):
        model.set_requires_gradient_sync(step == 1)
        assert ("reduce-scatter" in weft.explain_schedule(model)) == (step == 1)
        backward(model, mesh, step)
        assert model.first.weight.grad.placements[0].is_partial() == (step == 0)
    assert_gradients(model, plain(2))


def set_requires_all_reduce(model, mesh):
    other = Chain()
    weft.fully_shard(other, mesh, "ddp")
    other.materialize()
    other.set_requires_all_reduce(False)
    assert "all-reduce" not in weft.explain_schedule(other)
    other.set_requires_all_reduce(True)
    assert "all-reduce" in weft.explain_schedule(other)


def set_reshard_after_forward(model, mesh):
    model.set_reshard_after_forward(False)
    model(rows(mesh))
    assert is_whole(model.first)
    model.set_reshard_after_forward(True, recurse=True)
    model(rows(mesh))
    assert not is_whole(model.first)
    with pytest.raises(ValueError, match="expected a bool"):
        model.set_reshard_after_forward(2)


def set_reshard_after_backward(model, mesh):
    model.set_reshard_after_backward(False)
    backward(model, mesh)
    assert is_whole(model.first)


def set_modules_to_forward_prefetch(model, mesh):
    model.set_modules_to_forward_prefetch([model.second, model.first])
    text = weft.explain_schedule(model)
    assert text.index("unshard second") < text.index("unshard first")


def set_modules_to_backward_prefetch(model, mesh):
    before = weft.explain_schedule(model).split("backward", 1)[1]
    model.set_modules_to_backward_prefetch([model.first])
    text = weft.explain_schedule(model).split("backward", 1)[1]
    assert text.index("unshard first") < text.index("compute second")
    assert "unshard first" in before


def set_all_reduce_hook(model, mesh):
    sizes = []

    def hook(gradients):
        sizes.append(gradients.shape[0])
        gradients *= 3.0

    model.first.set_all_reduce_hook(hook)
    backward(model, mesh)
    expected = plain(1)
    assert_gradients(model, [3 * expected[0], 3 * expected[1], *expected[2:]])
    assert len(sizes) == 1 and sizes[0] in (18, 12)
    with pytest.raises(ValueError, match="stream"):
        model.first.set_all_reduce_hook(hook, stream=object())


def set_gradient_divide_factor(model, mesh):
    model.first.set_gradient_divide_factor(4.0)
    for step in range(2):
        backward(model, mesh, step)
    expected = plain(2)
    assert_gradients(model, [expected[0] / 4, expected[1] / 4, *expected[2:]])


def set_reduce_scatter_divide_factor(model, mesh):
    model.first.set_reduce_scatter_divide_factor(4.0)
    backward(model, mesh)
    expected = plain(1)
    assert_gradients(model, [expected[0] / 4, expected[1] / 4, *expected[2:]])


def set_force_sum_reduction_for_comms(model, mesh):
    model.set_force_sum_reduction_for_comms(True)
    with pytest.raises(ValueError, match="reductions are sums always"):
        model.set_force_sum_reduction_for_comms(False)


def set_unshard_in_backward(model, mesh):
    model.second.set_unshard_in_backward(False)
    loss = weft.sum(weft.square(model(rows(mesh))))
    with pytest.raises(RuntimeError, match="second.weight"):
        loss.backward()


def set_is_last_backward(model, mesh):
    model.set_is_last_backward(False)
    backward(model, mesh, 0)
    with pytest.raises(RuntimeError, match="reduction is under way"):
        model.first.weight.grad.to_local().tolist()
    model.set_is_last_backward(True)
    backward(model, mesh, 1)
    assert_gradients(model, plain(2))


def counted(collective):
    """A custom collective, and the counts that its calls get."""
    calls = []

    def called(output_tensor, input_tensor, group, counts):
        calls.append(counts)
        collective(output_tensor, input_tensor, group, counts)

    return called, calls


def set_custom_all_gather(model, mesh):
    gather, calls = counted(weft.all_gather_into_tensor)
    model.first.set_custom_all_gather(gather)
    backward(model, mesh)
    assert_gradients(model, plain(1))
    assert calls == [[15, 10], [3, 2]] * 2
    model.first.set_custom_all_gather(None)
    model(rows(mesh))
    assert len(calls) == 4


def set_custom_reduce_scatter(model, mesh):
    scatter, calls = counted(weft.reduce_scatter_tensor)
    model.first.set_custom_reduce_scatter(scatter)
    for step in range(2):
        backward(model, mesh, step)
    assert_gradients(model, plain(2))
    assert len(calls) == 4


def set_reduce_scatter_unused_params(model, mesh):
    model.set_reduce_scatter_unused_params(True)
    with pytest.raises(ValueError, match="reduced as zeros always"):
        model.set_reduce_scatter_unused_params(False)


def set_keep_unsharded_storage(model, mesh):
    shared = weft.predicted_bytes(model)["buffers"]
    model.set_keep_unsharded_storage(True)
    for step in range(2):
        model.first.unshard()
        with pytest.raises(ValueError, match="gathered for forward, expected memory that stays"):
            model.first.weight.tensor().detach().to_local().numpy()
        model.first.reshard()
        assert not is_whole(model.first)
        backward(model, mesh, step)
        assert weft.measured_bytes(model)["buffers"] > shared
    assert_gradients(model, plain(2))


def set_manual_backward_finalization(model, mesh):
    model.set_manual_backward_finalization(True)
    for step in range(2):
        backward(model, mesh, step)
    model.finalize_backward()
    assert_gradients(model, plain(2))
    with pytest.raises(ValueError, match="outermost"):
        model.first.set_manual_backward_finalization(True)


def finalize_backward(model, mesh):
    assert model.finalize_backward() is None
    model.set_manual_backward_finalization(True)
    backward(model, mesh)
    handle = model.finalize_backward(async_op=True)
    with pytest.raises(RuntimeError, match="reduction is under way"):
        model.first.weight.grad.to_local().tolist()
    handle.wait()
    assert_gradients(model, plain(1))


def reset_iter_state(model, mesh):
    backward(model, mesh)
    handle = model.second.add_hooks(before=lambda *x: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(rows(mesh))
    handle.remove()
    model.reset_iter_state()
    assert model.first.weight.grad is None and not is_whole(model.first)
    backward(model, mesh)
    assert_gradients(model, plain(1))


def set_post_optim_event(model, mesh):
    backward(model, mesh)
    event = weft.Event()
    event.record()
    model.set_post_optim_event(event)
    assert event.query()
    model.zero_grad()
    backward(model, mesh)
    assert_gradients(model, plain(1))


def raises(name, *arguments):
    """The method has no meaning here, and says why."""

    def check(model, mesh):
        with pytest.raises(ValueError, match=f"^{name}: .*expected no call; "):
            getattr(model, name)(*arguments)

    return check


CHECKS = {
    name: check
    for name, check in globals().items()
    if callable(check) and hasattr(weft.FSDPModule, name)
} | {
    name: raises(name, argument)
    for name, argument in {
        "set_reduce_scatter_max_input_buffers": 2,
        "set_separate_reduce_scatter_group": True,
        "set_allocate_memory_from_process_group_for_comm": True,
        "set_symm_mem_for_comm": "NCCL",
        "set_all_gather_layout": None,
        "set_reduce_scatter_input_fn": None,
    }.items()
}
CHECKS |= {name: raises(name) for name in ("get_pending_gradients", "synchronize_gradients")}


@pytest.mark.parametrize("name", NAMES)
def test_has_its_effect_or_raises(name):
    assert name in CHECKS, f"FSDPModule.{name} has no test"
    weft.run_ranks(RANKS, lambda world: CHECKS[name](*sharded(world)))


def test_the_names_are_those_of_pytorch():
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    public = {name for name in vars(fsdp.FSDPModule) if not name.startswith("_")}
    assert public <= set(NAMES), "not in fsdp_module_names.txt"


def test_only_sharded_modules_are_fsdp_modules():
    def body(world):
        model, mesh = sharded(world)
        assert isinstance(model, weft.FSDPModule) and isinstance(model.first, weft.FSDPModule)
        assert not isinstance(Chain(), weft.FSDPModule)
        for name in ("unshard", "reset_iter_state"):
            with pytest.raises(ValueError, match="expected one that was given to fully_shard"):
                getattr(Chain(), name)()

    weft.run_ranks(RANKS, body)


def test_a_sharded_module_is_not_copied():
    def body(world):
        with pytest.raises(ValueError, match="fully_shard and parallelize"):
            copy.deepcopy(sharded(world)[0])
        with pytest.raises(TypeError, match="expected a Module or a list of Modules"):
            weft.fully_shard(3, weft.DeviceMesh(world, {"dp": world.size}))

    weft.run_ranks(RANKS, body)


def test_another_method_is_a_forward():
    def body(world):
        model, mesh = sharded(world)
        weft.register_fsdp_forward_method(model, "twice")
        weft.register_fsdp_forward_method(Chain(), "twice")
        weft.sum(weft.square(model.twice(rows(mesh), scale=1.0))).backward()
        assert_gradients(model, plain(1))
        with pytest.raises(ValueError, match="'thrice' does not exist"):
            weft.register_fsdp_forward_method(model, "thrice")
        held = weakref.ref(model)
        del model
        gc.collect()
        assert held() is None

    weft.run_ranks(RANKS, body)


class Rounded:
    """Sends a slice as bfloat16."""

    def fsdp_pre_all_gather(self, tensor):
        return (tensor.to(weft.bfloat16),)

    def fsdp_post_all_gather(self, received, out):
        out.copy_(received[0].to(out.dtype))


def test_the_options_of_fully_shard():
    def body(world):
        mesh = weft.DeviceMesh(world, {"replicas": 2, "shards": 2})
        weft.manual_seed(3)
        model = Chain()
        dims = weft.DataParallelMeshDims(shard="shards", replicate="replicas")
        # One group, one ignored parameter, another dim, and another mesh.
        weft.fully_shard(
            [model.first, model.second],
            mesh,
            dp_mesh_dims=dims,
            ignored_params={model.second.bias},
            shard_placement_fn=lambda p: weft.Shard(1) if p.ndim == 2 else None,
        )
        weft.fully_shard(model, mesh, dp_mesh_dims=dims)
        x = weft.distribute(rows(), mesh, [weft.Shard(0), weft.Shard(0)])
        weft.sum(weft.square(model(x))).backward()
        assert model.first.weight.data.placements == (weft.Replicate(), weft.Shard(1))
        assert model.second.bias.data.placements == (weft.Replicate(), weft.Replicate())
        assert_gradients(model, plain(1))
        other = Chain()
        weft.fully_shard(
            other,
            mesh,
            shard_placement_fn=lambda p: weft.ShardPlacementResult(
                weft.Shard(0), mesh["shards"] if p.ndim == 1 else None
            ),
        )
        other.materialize()
        assert other.first.bias.data.placements == (weft.Replicate(), weft.Shard(0))
        assert other.first.weight.data.placements == (weft.Shard(0), weft.Shard(0))

    weft.run_ranks(4, body)


def test_a_number_of_ranks_and_a_wire_format():
    def body(world):
        model, mesh = sharded(world, reshard_after_forward=2)
        backward(model, mesh)
        assert_gradients(model, plain(1))
        model, mesh = sharded(world, extension=lambda name, p: Rounded())
        backward(model, mesh)
        for p, one in zip(model.parameters(), plain(1)):
            np.testing.assert_allclose(p.grad.full_tensor().numpy(), one, atol=0.2)
        half = weft.measured_bytes(model)["received"]
        model, mesh = sharded(world)
        backward(model, mesh)
        assert half < weft.measured_bytes(model)["received"]

    weft.run_ranks(4, body)


def test_models_share_buffers():
    def body(world):
        models = [sharded(world) for _ in range(2)]
        weft.share_comm_ctx([model for model, _ in models])
        for model, mesh in models:
            backward(model, mesh)
            assert_gradients(model, plain(1))
        sizes = [weft.measured_bytes(model)["buffers"] for model, _ in models]
        assert sizes[0] == sizes[1] == weft.predicted_bytes(models[0][0])["buffers"]

    weft.run_ranks(RANKS, body)


def test_parameters_are_thawed_and_replaced():
    def body(world):
        model, mesh = sharded(world)
        model.first.requires_grad_(False)
        backward(model, mesh)
        assert model.first.weight.grad is None
        model.zero_grad()
        model.first.requires_grad_(True)
        backward(model, mesh)
        assert_gradients(model, plain(1))
        model.zero_grad()
        weft.manual_seed(5)
        model.second = nn.Linear(5, 5)
        backward(model, mesh)
        weft.manual_seed(3)
        whole = Chain()
        whole.materialize()
        weft.manual_seed(5)
        whole.second = nn.Linear(5, 5)
        weft.sum(weft.square(whole(rows()))).backward()
        assert_gradients(model, [p.grad.numpy() for p in whole.parameters()])

    weft.run_ranks(3, body)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.head = nn.Linear(5, 5)
        self.head.weight = self.first.weight

    def forward(self, x):
        return self.head(weft.tanh(self.first(x)))


def untie(model):
    model.head.weight = nn.Linear(5, 5).weight


class Ending(nn.Module):
    """A layer, and a last one if there is one."""

    def __init__(self, layer):
        super().__init__()
        self.first = layer

    def forward(self, x):
        x = self.first(x)
        return self.last(x) if hasattr(self, "last") else x


def nested():
    model = Ending(Ending(nn.Linear(5, 5)))
    model.first.last = nn.Linear(5, 5)
    return model


def move_last(model):
    last = model.first.last
    del model.first.last
    model.last = last


@pytest.mark.parametrize("kind, change", [(Tied, untie), (nested, move_last)])
@pytest.mark.filterwarnings("ignore:fully_shard. parameter first.weight is also")
def test_parameters_move_between_groups(kind, change):
    def gradients(world=None):
        weft.manual_seed(3)
        model, mesh = kind(), None
        if world is not None:
            mesh = weft.DeviceMesh(world, {"dp": world.size})
            weft.fully_shard(model.first, mesh)
            weft.fully_shard(model, mesh)
        model.materialize()
        backward(model, mesh)
        model.zero_grad()
        weft.manual_seed(9)
        change(model)
        backward(model, mesh, 1)
        found = [p.grad if world is None else p.grad.full_tensor() for p in model.parameters()]
        return [one.numpy() for one in found]

    expected = gradients()
    for found in weft.run_ranks(RANKS, gradients):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_placements_count_from_the_end_and_name_strategies():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": world.size})
        model = Chain()
        weft.fully_shard(
            model,
            mesh,
            shard_placement_fn=lambda p: weft.ShardPlacementResult(
                weft.Shard(-1), strategy="ddp" if p.ndim == 1 else None
            ),
        )
        model.materialize()
        assert model.first.weight.data.placements == (weft.Shard(1),)
        assert model.first.bias.data.placements == (weft.Replicate(),)
        with pytest.raises(ValueError, match="placement of ShardPlacementResult is R, expected"):
            weft.ShardPlacementResult(weft.Replicate())
        with pytest.raises(ValueError, match="reshard_after_forward is 0, expected a number"):
            weft.fully_shard(Chain(), mesh, reshard_after_forward=0)
        weft.fully_shard(Chain(), mesh, reshard_after_forward=False)

    weft.run_ranks(RANKS, body)


def test_part_of_a_state_is_loaded():
    def body(world):
        model, mesh = sharded(world)
        state = {"first.weight": np.full((5, 5), 0.25, np.float32), "other": np.zeros(3)}
        with pytest.raises(ValueError):
            model.load_state_dict(state)
        model.load_state_dict(state, strict=False)
        model.first.unshard()
        assert (model.first.weight.tensor().detach().to_local() == 0.25).all()
        backward(model, mesh)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        total = np.sqrt(sum((p.grad.full_tensor().numpy() ** 2).sum() for p in model.parameters()))
        assert norm > 0.1 and abs(total - 0.1) < 1e-5

    weft.run_ranks(3, body)
