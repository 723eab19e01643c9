# SPDX-License-Identifier: Apache-2.0
"""Writes through views reach the elements that they show, on all ranks, or raise on all of them."""

import os
import threading

import numpy as np
import pytest
import view_writes
import weft
from weft import Replicate, Shard


def test_random_cases_are_numpys():
    """view_writes.py runs more: 50,000 with FIRST END, or WEFT_VIEW_CASES here."""
    count = int(os.environ.get("WEFT_VIEW_CASES", 520))
    failures = view_writes.run_seeds(range(count))
    repeating = view_writes.REPEATING
    failures |= view_writes.run_seeds(range(repeating, repeating + count // 2))
    assert not failures, "\n".join(f"seed {seed}: {words}" for seed, words in failures.items())


def on_mesh(axes, body):
    """Returns the result of body(mesh), which must be equal on all ranks."""
    ranks = weft.run_ranks(
        int(np.prod(list(axes.values()))), lambda world: body(weft.DeviceMesh(world, axes))
    )
    assert all(str(one) == str(ranks[0]) for one in ranks), ranks
    return ranks[0]


def test_a_slice_of_a_replicated_axis_is_written_on_all_replicas():
    def body(mesh):
        x = weft.distribute(weft.ones(4), mesh, {"tp": Shard(0)})
        x[0:2] = 9.0
        part = x[2:3]
        part.mul_(5)
        return x.full_tensor().tolist(), part.placements

    elements, placements = on_mesh({"dp": 2, "tp": 2}, body)
    assert elements == [9, 9, 5, 1]
    assert placements[0] == Replicate()


def test_ranks_without_rows_decide_as_the_others():
    def body(mesh):
        x = weft.distribute(weft.zeros(2, 3, 4), mesh, [Shard(0)])
        x[..., 1] = 3
        x[..., 2].add_(4)
        with pytest.raises(ValueError, match="add_: the tensor .* repeats elements"):
            weft.broadcast_to(x[:, :1], (2, 3, 4)).add_(1)
        return x.full_tensor().tolist()

    assert on_mesh({"dp": 4}, body) == [[[0, 3, 4, 0]] * 3] * 2


@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Shard(1)])
def test_views_are_not_silently_copies(placement):
    def body(mesh):
        x = weft.distribute(weft.zeros(4, 4), mesh, [placement])
        weft.diagonal(x.T).fill_(1)
        weft.diagonal(x[:, :3], 1).fill_(2)
        weft.unfold(x, 0, 2, 2)[1, 3].fill_(3)
        x[::-1][0, :2].fill_(4)
        x.reshape(2, 2, 2, 2)[0, 0, 1].fill_(5)
        return x.full_tensor().tolist()

    expected = np.zeros((4, 4))
    expected[range(4), range(4)] = 1
    expected[[0, 1], [1, 2]] = 2
    expected[2:, 3] = 3
    expected[3, :2] = 4
    expected[0, 2:] = 5
    assert on_mesh({"dp": 3}, body) == expected.tolist()


def test_copies_leave_the_original_alone():
    def body(mesh):
        x = weft.distribute(weft.zeros(4, 4), mesh, [Shard(0)])
        x.T.reshape(16).fill_(1)
        x.T.contiguous().fill_(1)
        x[[0, 2]].fill_(1)
        x.redistribute([Replicate()]).fill_(1)
        whole = weft.zeros(4)
        part = weft.distribute(whole, mesh, [Shard(0)])
        again = part.redistribute([Replicate()])
        cut = again.redistribute([Shard(0)])
        for one in (part, cut):
            one.fill_(9)
        with pytest.raises(ValueError, match="fill_: the tensor .* is a copy of elements"):
            weft.as_strided(x, (2, 2), (4, 1)).fill_(1)
        return x.full_tensor().tolist(), whole.tolist(), again.full_tensor().tolist()

    assert on_mesh({"dp": 4}, body) == ([[0] * 4] * 4, [0] * 4, [0] * 4)


def test_views_show_later_changes():
    def body(mesh):
        x = weft.distribute(weft.arange(8), mesh, [Shard(0)])
        one, some, odd = x[5], x[2:6], x[1::2]
        some.mul_(10)
        odd.add_(1)
        x[6] = -1
        return [t.full_tensor().tolist() for t in (x, one, some, odd)]

    assert on_mesh({"dp": 3}, body) == [
        [0, 2, 20, 31, 40, 51, -1, 8], 51, [20, 31, 40, 51], [2, 31, 51, 8]
    ]  # fmt: skip


def test_assignment_on_three_ranks():
    def body(mesh):
        u = weft.distribute(weft.zeros(8), mesh, [Shard(0)])
        u[1:-1] = weft.distribute(weft.arange(6, dtype=weft.float32), mesh, [Shard(0)])
        x = weft.distribute(weft.ones(5, 6), mesh, [Shard(1)])
        x[1:4, 2:5] *= 3
        x[2] = 1
        x[::2] += 1
        return u.full_tensor().tolist(), x.full_tensor().tolist()

    x = np.ones((5, 6))
    x[1:4, 2:5] *= 3
    x[2] = 1
    x[::2] += 1
    assert on_mesh({"dp": 3}, body) == ([0, 0, 1, 2, 3, 4, 5, 0], x.tolist())


def test_changes_of_moved_parts_are_recorded():
    def body(mesh):
        w = weft.distribute(weft.ones(6), mesh, [Shard(0)]).requires_grad_()
        with pytest.raises(ValueError, match="or a view of one"):
            w[1:5].mul_(2)
        y = w * 2
        y[1:5] *= 3
        y[2] = w[5] * 7
        y.sum().backward()
        return y.full_tensor().tolist(), w.grad.full_tensor().tolist()

    assert on_mesh({"dp": 4}, body) == ([2, 6, 7, 6, 6, 2], [2, 6, 0, 6, 6, 9])


def test_changes_that_cannot_be_put_back_raise():
    def body(mesh):
        x = weft.distribute(weft.ones(4), mesh, [Shard(0)])
        part = x[:2]
        with weft.traffic("forbid"), pytest.raises(ValueError, match="of other ranks, expected"):
            part.mul_(2)
        with pytest.raises(ValueError, match="is this rank's part of a copied view, expected"):
            part.local().mul_(2)
        sums = weft.from_local(weft.ones(4, 2), mesh, [weft.Partial("max")])
        with pytest.raises(ValueError, match="with a Partial, expected"):
            sums[:2].add_(2)
        return x.full_tensor().tolist()

    assert on_mesh({"dp": 2}, body) == [1] * 4


def test_tensors_outlive_their_mesh():
    def made(world):
        return weft.distribute(weft.ones(8), weft.DeviceMesh(world, {"dp": 2}), [Shard(0)])

    def body(world):
        w = made(world)
        w[1:5].mul_(2)
        with weft.traffic("forbid"):
            more = w + 1
        other = weft.distribute(weft.ones(8), weft.DeviceMesh(world, {"dp": 2}), [Shard(0)])
        with weft.traffic("forbid"):
            more = more + other
        return more.full_tensor().tolist()

    assert weft.run_ranks(2, body) == [[3, 4, 4, 4, 4, 3, 3, 3]] * 2


def test_long_chains_of_moved_views_do_not_keep_all_memory():
    def body(mesh):
        x = weft.distribute(weft.arange(80), mesh, [Shard(0)])
        for _ in range(40):
            x = x[1:]
        with pytest.raises(ValueError, match="fill_: the tensor .* is a copy of elements"):
            x.fill_(1)
        return x.full_tensor().tolist()

    assert on_mesh({"dp": 3}, body) == list(range(40, 80))


def over(world, values, *placements, axes=None):
    mesh = weft.DeviceMesh(world, axes or {"a": world.size})
    return weft.distribute(weft.asarray(values), mesh, list(placements))


OUTDATED = "view: the tensor .* is a copy of elements of other ranks, which have changed since"


def test_a_read_of_one_part_never_communicates():
    def body(world):
        x = over(world, np.arange(8.0), weft.Shard(0))
        element, part = x[3], x[1:5]
        x.add_(1)
        for read in (element.item, part.local().tolist, lambda: np.asarray(part.local())):
            with pytest.raises(ValueError, match=OUTDATED):
                read()
        return (element + 0).item(), part.full_tensor().tolist(), element.item()

    assert weft.run_ranks(2, body) == [(4.0, [2.0, 3.0, 4.0, 5.0], 4.0)] * 2


def test_a_refused_fetch_leaves_the_view_outdated():
    def body(world):
        x = over(world, np.arange(8.0), weft.Shard(0))
        view = x[1:5]
        x.add_(1)
        with weft.traffic("forbid"), pytest.raises(ValueError):
            view + 0
        return (view + 0).full_tensor().tolist()

    assert weft.run_ranks(2, body) == [[2.0, 3.0, 4.0, 5.0]] * 2


def test_ranks_agree_after_changes_of_one_part():
    def body(world):
        x = over(world, np.arange(8.0), weft.Shard(0))
        view = x[1:5]
        if world.rank == 0:
            x.local().fill_(9)
        return (view + 0).full_tensor().shape

    assert weft.run_ranks(2, body) == [(4,)] * 2


def test_recorded_changes_outdate_gradients_of_copies():
    x = weft.arange(4.0)
    x.requires_grad_(True)
    h = x * x
    turned = h[::-1]
    h.mul_(weft.full((4,), 3.0))
    with pytest.raises(ValueError, match="after a recorded op changed it in place"):
        turned.sum()

    def body(world):
        y = over(world, np.arange(4.0), weft.Shard(0))
        y.requires_grad_(True)
        base = y * 1
        one, other = base[1:3], base[1:3]
        one.mul_(weft.distribute(weft.full((2,), 3.0), y.device_mesh, {}))
        with pytest.raises(ValueError, match="after a recorded op changed it in place"):
            other.sum()

    weft.run_ranks(2, body)


def test_views_of_views_have_a_limit():
    x = weft.zeros(4)
    view = x
    for _ in range(33):
        view = view[::-1]
    assert view.tolist() == [0.0] * 4
    x.add_(1)
    with pytest.raises(ValueError, match="through more than 32 copies, which have changed since"):
        view.tolist()


def test_an_optimizer_refuses_a_copy():
    parameter = weft.nn.Parameter(weft.torch.as_strided(weft.zeros(6), [2, 2], [2, 1], 0))
    parameter.grad = weft.ones((2, 2))
    with pytest.raises(ValueError, match="is a copy of elements of a tensor"):
        weft.optim.AdamW([parameter]).step()


def test_threads_may_read_one_view():
    base = weft.zeros(1_000_000)
    for _ in range(5):
        turned, sums = base[::-1], []
        base.add_(1)
        threads = [threading.Thread(target=lambda: sums.append(turned.sum().item())) for _ in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sums == [base.sum().item()] * 2


def test_a_turned_tensor_keeps_its_form_over_a_mesh():
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 1, "b": 1})
        a = weft.arange(6.0).reshape((2, 3))
        flat = weft.distribute(a.T, mesh, [weft.Replicate()] * 2).reshape((-1,))
        flat.fill_(9)
        moved = weft.distribute(a, mesh, [weft.Shard(0), weft.Replicate()]).T
        moved.redistribute([weft.Replicate()] * 2).reshape((-1,)).fill_(9)
        return a.tolist()

    assert weft.run_ranks(1, body) == [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]


def test_collectives_into_a_view_that_is_a_copy_reach_its_base():
    def body(world):
        a = weft.arange(4, dtype=weft.float32)
        b = a[::-1]
        weft.all_reduce(b, world)
        shown = a.tolist(), b.tolist()
        weft.all_gather_into_tensor(b, weft.full((2,), float(world.rank)), world)
        gathered = a.tolist()
        weft.reduce_scatter_tensor(a[1::-1], weft.arange(4, dtype=weft.float32), world)
        return shown, gathered, a.tolist()

    first, second = weft.run_ranks(2, body)
    assert first[:2] == second[:2] == (([0, 2, 4, 6], [6, 4, 2, 0]), [1, 1, 0, 0])
    assert (first[2], second[2]) == ([2, 0, 0, 0], [6, 4, 0, 0])


def test_what_other_libraries_write_to_a_view_is_not_lost():
    a = weft.arange(4)
    assert a.numpy().flags.writeable and a[1:].numpy().flags.writeable
    assert not a[::-1].numpy().flags.writeable
    assert not np.asarray(memoryview(a[::-1])).flags.writeable
    weft.from_dlpack(a[::-1]).fill_(9)
    with pytest.raises(ValueError, match="dlpack: the tensor .* held as a copy, expected"):
        a[::-1].__dlpack__(copy=False)
    assert a.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("ranks", [2, 4])
def test_views_of_sharded_gradients_show_later_sums_and_clips(ranks):
    """On four ranks the last holds no row."""

    def body(mesh):
        model = weft.nn.Linear(2, 3, bias=False)
        weft.fully_shard(model, mesh)
        model.materialize()
        x = weft.distribute(weft.ones((ranks, 2)), mesh, [Shard(0)])
        weft.sum(model(x)).backward()
        gradient = model.weight.grad
        rows, last = gradient[0:2], gradient[-1]
        before = rows.full_tensor().tolist(), last.full_tensor().tolist()
        weft.sum(model(x)).backward()
        twice = rows.full_tensor().tolist(), last.full_tensor().tolist()
        weft.nn.utils.clip_grad_value_(model.parameters(), 1.0)
        clipped = rows.full_tensor().tolist(), last.full_tensor().tolist()
        weft.nn.utils.clip_grad_norm_(model.parameters(), 0.5 * 6**0.5)
        return before, twice, clipped, np.round(rows.full_tensor().tolist(), 4).tolist()

    def both(value):
        return [[value] * 2] * 2, [value] * 2

    expected = both(ranks), both(2 * ranks), both(1), both(0.5)[0]
    assert on_mesh({"dp": ranks}, body) == expected


def test_views_of_parameters_show_steps():
    def body(mesh):
        w = weft.nn.Parameter(weft.distribute(weft.ones(3), mesh, [Shard(0)]))
        optimizer = weft.optim.SGD([w], lr=0.5)
        with weft.no_grad():
            view = w.detach()[0:2]
        before = view.full_tensor().tolist()
        (w * 2).sum().backward()
        optimizer.step()
        return before, view.full_tensor().tolist()

    assert on_mesh({"dp": 4}, body) == ([1, 1], [0, 0])
