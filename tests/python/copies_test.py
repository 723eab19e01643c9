# SPDX-License-Identifier: Apache-2.0
"""copy, deepcopy and pickle: of values and layouts, and the errors for other objects."""

import copy
import pickle

import numpy as np
import pytest
import weft
from weft import Partial, Replicate, Shard, nn, optim

DTYPES = "float32 bfloat16 float16 float64 int32 int64 uint8 bool".split()


def again(x):
    """x after pickling with each protocol; all results are equal."""
    all_of_it = [pickle.loads(pickle.dumps(x, n)) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    return all_of_it[-1]


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_themselves(name):
    dtype = getattr(weft, name)
    assert again(dtype) is copy.deepcopy(dtype) is copy.copy(dtype) is dtype


def test_devices_and_placements_are_equal():
    kinds = [Shard(0), Shard(7), Shard(-1), Replicate()]
    kinds += [Partial(op) for op in ("sum", "avg", "max", "min")]
    for one in [weft.Device("cpu"), weft.Device("meta"), *kinds]:
        for made in (again(one), copy.deepcopy(one), copy.copy(one)):
            assert made == one and type(made) is type(one) and repr(made) == repr(one)
    assert again({"a": [Shard(1)]}) == {"a": [Shard(1)]}


@pytest.mark.parametrize("duplicate", [again, copy.deepcopy, copy.copy])
def test_placements_of_a_mesh_lay_out_alike(duplicate):
    given = [
        weft.Placements([Shard(0), Shard(0)]).cut_in_order(0, ["tp", "dp"]),
        weft.Placements({"tp": Shard(1)}),
        weft.Placements([]),
    ]

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2, "tp": 2})
        whole = weft.randn((5, 3))
        laid_out = []
        for placements in given:
            for one in (placements, duplicate(placements)):
                x = weft.distribute(whole, mesh, one)
                laid_out.append((x.placements, x.local().tolist()))
        return laid_out

    for laid_out in weft.run_ranks(4, body):
        assert laid_out[::2] == laid_out[1::2]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(5, 7), (3,), (), (0, 2)])
def test_values_come_back_to_the_bit(name, shape):
    values = np.random.default_rng(0).integers(0, 2, shape) * 1.5
    x = weft.asarray(values, dtype=weft.float64).to(name)
    for made in (again(x), copy.deepcopy(x)):
        assert made.dtype is x.dtype and made.shape == x.shape and made.tolist() == x.tolist()
        assert not made.requires_grad and made.device == x.device
        made.fill_(1)
        assert x.tolist() == weft.asarray(values, dtype=weft.float64).to(name).tolist()


def test_views_come_back_dense_and_leaves_as_leaves():
    x = weft.asarray(np.arange(35.0).reshape(5, 7))
    turned = x.T[1::2]
    assert again(turned).tolist() == copy.deepcopy(turned).tolist() == turned.tolist()
    leaf = weft.ones((3,)).requires_grad_()
    (leaf * leaf).sum().backward()
    assert again(leaf).requires_grad and again(leaf).is_leaf and again(leaf).grad is None
    deep = copy.deepcopy(leaf)
    assert deep.requires_grad and deep.grad.tolist() == [2.0] * 3
    deep.grad.fill_(5)
    assert leaf.grad.tolist() == [2.0] * 3
    assert copy.copy(x) is not x
    copy.copy(x).fill_(0)
    assert x.sum().item() == 0


def test_a_result_is_not_copied_with_its_gradient():
    result = weft.ones((3,)).requires_grad_() * 2
    for duplicate in (pickle.dumps, copy.deepcopy):
        with pytest.raises(ValueError, match=r"\[3\] is the result of an op.*detach\(\) it"):
            duplicate(result)
    with pytest.raises(ValueError, match="on meta"):
        pickle.dumps(weft.zeros((2,), device="meta"))
    assert copy.deepcopy(weft.zeros((2,), device="meta")).device == "meta"


def test_sharded_tensors_are_copied_where_they_are():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 3})
        out = []
        for placement in (Shard(0), Shard(1), Replicate(), Partial()):
            x = weft.from_local(weft.full((2, 2), world.rank + 1.0), mesh, [placement])
            before = mesh.traffic
            y = copy.deepcopy({"x": x})["x"]
            assert mesh.traffic == before and y.placements == x.placements
            x.local().fill_(9)
            out.append(y.local().tolist())
            with pytest.raises(ValueError, match="laid out over .*CheckpointSaver.*full_tensor"):
                pickle.dumps(x)
        return out

    for rank, out in enumerate(weft.run_ranks(3, body)):
        assert out == [[[rank + 1.0] * 2] * 2] * 4


def test_layers_of_8_bits_stay_such_layers():
    eight = nn.Linear(16, 16)
    eight.float8 = True
    x = weft.randn((4, 16))
    for layer in (eight, nn.Float8Linear(16, 16, bias=False)):
        expected = layer(x).tolist()
        made = copy.deepcopy(layer)
        assert type(made) is type(layer) and made.float8
        assert made(x).tolist() == expected
    assert not copy.deepcopy(nn.Linear(16, 16)).float8
    model = nn.TransformerModel("tiny")
    flags = [n for n, m in model.named_modules() if isinstance(m, nn.Linear)]
    nn.convert_to_float8(model, lambda layer, path: path != flags[0])
    copied = dict(copy.deepcopy(model).named_modules())
    assert [n for n in flags if copied[n].float8] == flags[1:]


class Mine(nn.MoE):
    pass


@pytest.mark.parametrize("kind", [nn.MoE, Mine])
def test_experts_are_copied_with_their_balance(kind):
    moe = kind(
        nn.MoEConfig(
            dim=6, width=5, experts=4, router=nn.RouterOptions(top_k=2), balance_bias=True,
            shared_width=3, shared_gate=True,
        )
    )
    moe.materialize()
    x = weft.randn((7, 6))
    moe(x).sum().backward()
    moe.update_balance(0.5)
    expected = moe(x).tolist()
    for made in (copy.deepcopy(moe), copy.deepcopy(nn.Sequential(moe))[0]):
        assert type(made) is kind
        bias = made.state_dict()["gate.e_score_correction_bias"].tolist()
        assert bias == moe.state_dict()["gate.e_score_correction_bias"].tolist() != [0.0] * 4
        assert made(x).tolist() == expected
    made.update_balance(0.5)
    assert moe(x).tolist() == expected


def test_latent_attention_is_copied():
    attention = nn.LatentAttention(
        nn.LatentAttentionConfig(
            dim=8, heads=2, kv_lora_rank=4, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=4
        )
    )
    attention.materialize()
    x = weft.randn((2, 5, 8))
    assert copy.deepcopy(attention)(x).tolist() == attention(x).tolist()


def test_parts_of_experts_are_copied_with_them_only():
    moe = nn.MoE(nn.MoEConfig(dim=4, width=4, experts=2))
    for module, name in [(moe.gate, "Router"), (moe.experts, "Experts")]:
        with pytest.raises(ValueError, match=f"class of the module is {name}, .*load_state_dict"):
            copy.deepcopy(module)


def test_what_is_no_value_says_what_to_do():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 1})
        assert copy.deepcopy(mesh) is mesh and copy.copy(world) is world
        for one, sentence in [
            (mesh, "a DeviceMesh is not pickled.*state_dict and CheckpointSaver"),
            (world, "a Communicator is not pickled"),
        ]:
            with pytest.raises(TypeError, match=sentence):
                pickle.dumps(one)

    weft.run_ranks(1, body)
    model = nn.Sequential(nn.Linear(2, 2))
    model.materialize()
    for one, sentence in [
        (model, "a Module is not pickled.*load_state_dict"),
        (model[0].weight, "a Parameter is not pickled; take its data"),
        (optim.SGD(model), "an Optimizer is not pickled.*state_dict"),
    ]:
        with pytest.raises(TypeError, match=sentence):
            pickle.dumps(one)
