# SPDX-License-Identifier: Apache-2.0
"""weft.to_mesh: random pairs of meshes and layouts against NumPy: values, the bytes that each rank
receives, and gradients. WEFT_TO_MESH_PAIRS sets how many pairs there are."""

import os
import pathlib
import random
import sys

import numpy as np
import pytest
import weft

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from launch import LAUNCHERS, launch

PAIRS = int(os.environ.get("WEFT_TO_MESH_PAIRS", "40"))


def factors_of(ranks, rng):
    """The sizes of one or two axes with so many ranks."""
    first = rng.choice([d for d in range(1, ranks + 1) if ranks % d == 0])
    return rng.choice([(ranks,), (first, ranks // first)])


class Layout:
    """A layout over a mesh of named axes, as plain numbers."""

    def __init__(self, ranks, shape, prefix, rng, may_be_partial):
        self.ranks, self.shape = ranks, shape
        self.sizes = factors_of(len(ranks), rng)
        self.axes = {f"{prefix}{i}": size for i, size in enumerate(self.sizes)}
        self.cuts = []
        for _ in self.sizes:
            kinds = ["shard"] * 3 + ["whole"] + (["partial"] if may_be_partial else [])
            kind = rng.choice(kinds)
            self.cuts.append(rng.randrange(len(shape)) if kind == "shard" and shape else kind)
        self.explicit = None
        cut = [axis for axis, dim in enumerate(self.cuts) if isinstance(dim, int)]
        if len(cut) == 1 and rng.random() < 0.4:
            size, parts = shape[self.cuts[cut[0]]], self.sizes[cut[0]]
            ends = sorted(rng.randint(0, size) for _ in range(parts - 1))
            self.explicit = [b - a for a, b in zip([0, *ends], [*ends, size])]
        self.turned = len(cut) == 2 and self.cuts[0] == self.cuts[1] and rng.random() < 0.5

    @property
    def placements(self):
        made = []
        for cut in self.cuts:
            if isinstance(cut, int):
                made.append(weft.Shard(cut, self.explicit) if self.explicit else weft.Shard(cut))
            else:
                made.append(weft.Partial() if cut == "partial" else weft.Replicate())
        if not self.turned:
            return made
        return weft.Placements(made).cut_in_order(self.cuts[0], list(self.axes)[::-1])

    def box(self, index):
        """A slice a dim: what rank `index` of the mesh holds."""
        at = np.unravel_index(index, self.sizes)
        bounds = [(0, size) for size in self.shape]
        order = list(range(len(self.sizes)))
        for axis in order[::-1] if self.turned else order:
            dim = self.cuts[axis]
            if not isinstance(dim, int):
                continue
            begin, end = bounds[dim]
            if self.explicit:
                first = sum(self.explicit[: at[axis]])
                bounds[dim] = (first, first + self.explicit[at[axis]])
                continue
            chunk = -(-(end - begin) // self.sizes[axis])
            first = min(end, begin + chunk * at[axis])
            bounds[dim] = (first, min(end, first + chunk))
        return tuple(slice(a, b) for a, b in bounds)

    def is_partial(self):
        return "partial" in self.cuts

    def term(self, whole, index):
        """This rank's part; of a sum, 3 times the values less what the other ranks have."""
        part = whole[self.box(index)].copy()
        at = np.unravel_index(index, self.sizes)
        partial = [axis for axis, cut in enumerate(self.cuts) if cut == "partial"]
        count = int(np.prod([self.sizes[axis] for axis in partial]))
        if count == 1:
            return part
        return part * (1 + 2 * (count - 1) if all(at[axis] == 0 for axis in partial) else -2)

    def mesh(self, world):
        if world.rank not in self.ranks:
            return None
        return weft.DeviceMesh(world.subgroup(self.ranks, "mesh"), self.axes)


class Pair:
    """A random pair of meshes and layouts of a few tensors."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.world = rng.randint(1, 5)
        every = range(self.world)
        ranks_from = rng.sample(every, rng.randint(1, self.world))
        ranks_to = rng.choice(
            [ranks_from, rng.sample(every, rng.randint(1, self.world)), list(every)]
        )
        self.both = sorted({*ranks_from, *ranks_to})
        self.tensors = {}
        sizes_from, sizes_to = rng.getrandbits(30), rng.getrandbits(30)
        for name in "abc"[: rng.randint(1, 3)]:
            shape = tuple(rng.choice([0, 1, 2, 3, 5, 8]) for _ in range(rng.randint(1, 3)))
            source = Layout(ranks_from, shape, "f", rng, True)
            target = Layout(ranks_to, shape, "t", rng, rng.random() < 0.2)
            source_rng, target_rng = random.Random(sizes_from), random.Random(sizes_to)
            self.same_axes(source, source_rng, "f")
            self.same_axes(target, target_rng, "t")
            values = np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)
            self.tensors[name] = (source, target, values)
        self.round_bytes = rng.choice([0, 4, 64])

    @staticmethod
    def same_axes(layout, rng, prefix):
        """All tensors are over one mesh: their axes come from one generator."""
        sizes = factors_of(len(layout.ranks), rng)
        if sizes == layout.sizes:
            return
        layout.sizes = sizes
        layout.axes = {f"{prefix}{i}": size for i, size in enumerate(sizes)}
        layout.cuts = ([*layout.cuts, "whole"])[: len(sizes)]
        layout.explicit, layout.turned = None, False

    def lacking(self, rank):
        """The bytes of the parts of tensors that a rank does not hold yet."""
        total = 0
        for source, target, values in self.tensors.values():
            wanted = np.zeros(values.shape, bool)
            if rank in target.ranks:
                wanted[target.box(target.ranks.index(rank))] = True
            if rank in source.ranks:
                wanted[source.box(source.ranks.index(rank))] = False
            total += int(wanted.sum()) * 4
        return total

    def is_reduced(self):
        return any(source.is_partial() for source, _, _ in self.tensors.values())

    def run(self, world):
        if world.rank not in self.both:
            return
        ranks = world.subgroup(self.both, "both")
        source, target, _ = self.tensors["a"]
        mesh_from, mesh_to = source.mesh(world), target.mesh(world)
        given = {}
        for name, (source, _, values) in self.tensors.items():
            if mesh_from:
                part = source.term(values, mesh_from.get_rank())
                given[name] = weft.from_local(
                    weft.asarray(part), mesh_from, source.placements, shape=values.shape
                ).requires_grad_()
        before = ranks.traffic[0]
        moved = weft.to_mesh(
            given if mesh_from else None,
            mesh_to,
            lambda name, shape: self.tensors[name][1].placements,
            ranks=ranks,
            round_bytes=self.round_bytes,
        )
        if not self.is_reduced():
            assert ranks.traffic[0] - before == self.lacking(world.rank)
        self.check(moved, mesh_to)
        self.check_gradients(given, moved, mesh_to)

    def check(self, moved, mesh):
        for name, (_, target, values) in self.tensors.items():
            if mesh is None:
                assert moved[name].shape == ()
                continue
            assert list(moved[name].placements) == list(
                weft.zeros(values.shape, mesh=mesh, placements=target.placements).placements
            )
            np.testing.assert_array_equal(np.asarray(moved[name].full_tensor().detach()), values)
            if not target.is_partial():
                part = values[target.box(mesh.get_rank())]
                np.testing.assert_array_equal(np.asarray(moved[name].local()), part)

    def check_gradients(self, given, moved, mesh):
        factors = {
            name: np.arange(values.size, dtype=np.float32).reshape(values.shape) % 7 - 3
            for name, (_, _, values) in self.tensors.items()
        }
        loss = 0
        for name, tensor in moved.items():
            if mesh is None:
                loss = loss + tensor
                continue
            factor = weft.distribute(weft.asarray(factors[name]), mesh, {})
            loss = loss + weft.sum(tensor * factor)
        loss.backward()
        for name, tensor in given.items():
            np.testing.assert_array_equal(np.asarray(tensor.grad.full_tensor()), factors[name])


@pytest.mark.parametrize("block", range(4))
def test_random_pairs_equal_numpy(block):
    for seed in range(block, PAIRS, 4):
        pair = Pair(seed)
        try:
            weft.run_ranks(pair.world, pair.run, deadline=20.0)
        except Exception as error:
            raise AssertionError(f"pair {seed} of {pair.world} ranks") from error


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_random_pairs_move_between_processes(launcher):
    done = launch(launcher, 4, [sys.executable, __file__])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pairs moved") == 4


def test_lists_and_state_dicts_move_whole():
    def body(world):
        trainers, servers = [0, 1], [2]
        both = world.subgroup([0, 1, 2], "both")
        trains, serves = world.rank in trainers, world.rank in servers
        dp = weft.DeviceMesh(world.subgroup(trainers, "dp"), {"dp": 2}) if trains else None
        tp = weft.DeviceMesh(world.subgroup(servers, "tp"), {"tp": 1}) if serves else None
        model = None
        if trains:
            model = weft.nn.Sequential(weft.nn.Linear(5, 3), weft.nn.ReLU(), weft.nn.Linear(3, 2))
            weft.fully_shard(model, dp)
            model.materialize()
        state = weft.state_dict(model) if trains else None
        with weft.no_grad():
            moved = weft.to_mesh(state, tp, ranks=both)
        assert sorted(moved) == ["0.bias", "0.weight", "2.bias", "2.weight"]
        assert (moved["0.weight"] is None) == trains
        listed = weft.to_mesh([weft.ones((4,), mesh=dp)] * 3 if trains else None, tp, ranks=both)
        assert len(listed) == 3 and (listed[0] is None) == trains
        whole = moved["0.weight"].full_tensor().tolist() if serves else None
        return whole or [state.tensors["0.weight"].full_tensor().tolist(), trains][0]

    first, second, server = weft.run_ranks(3, body, seed=3)
    assert first == second == server


def test_a_tensor_moves_by_its_method_and_a_plan_prints():
    def body(world):
        a, b = weft.DeviceMesh(world, {"a": 2}), weft.DeviceMesh(world, {"b": 2})
        x = weft.distribute(weft.arange(6, dtype=weft.float32), a, [weft.Shard(0)])
        y = x.to_mesh(b).full_tensor()
        assert y.tolist() == [0, 1, 2, 3, 4, 5]
        move = weft.MeshMove({"x": x}, b, lambda name, shape: [weft.Replicate()])
        into = {"x": weft.zeros((6,), mesh=b)}
        assert move.run({"x": x}, into)["x"].full_tensor().tolist() == y.tolist()
        assert into["x"].full_tensor().tolist() == y.tolist()
        assert (move.received_bytes, move.kept_bytes, move.ranks.size) == (12, 12, 2)
        return str(move)

    assert weft.run_ranks(2, body)[0] == (
        "mesh(a=2) of ranks 0, 1 -> mesh(b=2) of ranks 0, 1\n"
        "x: [6] f32 [S(0)] -> [R]\n"
        "rank 0: receives 12 B from rank 1, keeps 12 B\n"
        "rank 1: receives 12 B from rank 0, keeps 12 B\n"
        "moved 24 B in 1 round; a rank sends at most 12 B and receives at most 12 B\n"
    )


def test_placements_that_are_none_are_named():
    def body(world):
        a = weft.DeviceMesh(world, {"a": 1})
        x = weft.distribute(weft.arange(6), a, {})
        with pytest.raises(TypeError, match="placements are of type int, expected one an axis"):
            weft.to_mesh(x, a, 3)
        with pytest.raises(ValueError, match='placements of tensor "x" are another object'):
            weft.to_mesh({"x": x}, a, lambda name, shape: 3)

    weft.run_ranks(1, body)


def main():
    """A rank of a job of four processes."""
    world, moved = weft.connect(deadline=60.0), 0
    for seed in range(PAIRS):
        pair = Pair(seed)
        if pair.world <= world.size and world.rank < pair.world:
            pair.run(world.subgroup(list(range(pair.world)), f"pair {seed}"))
            moved += 1
    print(f"rank {world.rank}: {moved} pairs moved", flush=True)
    world.barrier()


if __name__ == "__main__":
    main()
