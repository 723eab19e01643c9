# SPDX-License-Identifier: Apache-2.0
"""Dtypes of 8 bits: conversions, interchange, quantized sharding, Float8Linear."""

import numpy as np
import pytest
import weft
from weft import nn, optim

DTYPES = [weft.float8_e4m3fn, weft.float8_e5m2]


def ml_dtype(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return np.dtype(getattr(ml_dtypes, dtype.name))


def patterns():
    """2^24 floats of all signs and exponents, NaN, infinity and ties included."""
    index = np.arange(2**24, dtype=np.uint32)
    low = (index * np.uint32(2654435761)) >> np.uint32(24)
    ties = index % 4 == 0
    return (index << np.uint32(8) | np.where(ties, np.uint32(0), low)).view(np.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_conversions_equal_those_of_ml_dtypes(dtype):
    theirs = ml_dtype(dtype)
    x = patterns()
    with np.errstate(all="ignore"):
        expected = x.astype(theirs).view(np.uint8)
    found = weft.from_numpy(x).to(dtype).numpy()
    assert found.dtype == theirs
    np.testing.assert_array_equal(found.view(np.uint8), expected)
    codes = np.arange(256, dtype=np.uint8).view(theirs)
    np.testing.assert_array_equal(
        weft.from_numpy(codes).to(weft.float32).numpy(), codes.astype(np.float32)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_shares_memory(dtype):
    array = np.arange(12, dtype=np.float32).reshape(3, 4).astype(ml_dtype(dtype))
    tensor = weft.from_numpy(array, copy=False)
    assert tensor.dtype is dtype
    assert np.shares_memory(tensor.numpy(), array)
    assert tensor.tolist() == array.astype(np.float32).tolist()
    assert weft.asarray([1.0, 3.0], dtype=dtype).tolist() == [1.0, 3.0]


def test_dlpack_with_pytorch():
    torch = pytest.importorskip("torch")
    for dtype in DTYPES:
        theirs = torch.arange(6.0).reshape(2, 3).to(getattr(torch, dtype.name))
        if not hasattr(torch, "float8_e4m3fn"):
            pytest.skip("this PyTorch has no float8")
        tensor = weft.from_dlpack(theirs)
        assert tensor.dtype is dtype and tensor.tolist() == theirs.float().tolist()
        back = torch.from_dlpack(tensor)
        assert back.dtype == theirs.dtype and back.data_ptr() == theirs.data_ptr()


@pytest.mark.parametrize("dtype", DTYPES)
def test_capsules_keep_the_dtype(dtype):
    tensor = weft.asarray([[1.0, -2.0], [0.5, 4.0]], dtype=dtype)
    again = weft.from_dlpack(tensor.__dlpack__())
    assert again.dtype is dtype and again.tolist() == tensor.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_names_and_limits(dtype):
    assert weft.dtype_named(dtype.name) is dtype and dtype.itemsize == 1
    assert dtype.is_floating_point and repr(dtype) == f"weft.{dtype.name}"
    limits = weft.finfo(dtype)
    assert weft.asarray(limits.max).to(dtype).to(weft.float32).item() == limits.max
    assert weft.asarray(limits.smallest_normal).to(dtype).item() == limits.smallest_normal
    assert weft.can_cast(dtype, dtype) and not weft.can_cast(dtype, weft.float32)


def test_there_is_no_arithmetic():
    a = weft.asarray([1.0], dtype=weft.float8_e4m3fn)
    with pytest.raises(ValueError, match="expected a dtype with arithmetic; cast it first"):
        a + a
    with pytest.raises(ValueError, match="cast f8_e4m3 first"):
        a * weft.ones((1,))


def trained(world, quantization, convert=False):
    weft.manual_seed(5)
    mesh = weft.DeviceMesh(world, {"dp": world.size})
    model = nn.Sequential(nn.Linear(13, 37), nn.Tanh(), nn.Linear(37, 3))
    if convert:
        assert nn.convert_to_float8(model, lambda layer, path: path != "2") == 1
    weft.fully_shard(model, mesh, **quantization)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    x = weft.distribute(weft.randn((12, 13)), mesh, {"dp": weft.Shard(0)})
    y = weft.distribute(weft.randn((12, 3)), mesh, {"dp": weft.Shard(0)})
    for _ in range(60):
        loss = weft.mean((model(x) - y) ** 2)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.full_tensor().item(), weft.measured_bytes(model), weft.predicted_bytes(model)


@pytest.mark.parametrize("ranks", [1, 3])
def test_quantized_sharding_trains(ranks):
    def body(world):
        plain, _, _ = trained(world, {})
        for quantization in (
            {"quantized_gather": "int8", "quantized_gradients": "int8", "quantization_block": 64},
            {"quantized_gather": weft.float8_e4m3fn, "quantized_gradients": weft.bfloat16},
            {"quantized_gradients": "int8", "error_feedback": True},
        ):
            loss, measured, predicted = trained(world, quantization)
            assert abs(loss - plain) < 0.05
            assert measured["received"] == predicted["received"]
            assert measured["gradients"] == predicted["gradients"]
        loss, _, _ = trained(world, {}, convert=True)
        assert abs(loss - plain) < 0.05

    weft.run_ranks(ranks, body)


def test_float8_linear_is_a_linear():
    weft.manual_seed(1)
    layer = nn.Float8Linear(5, 4)
    assert isinstance(layer, nn.Linear) and layer.float8
    x = weft.randn((7, 5))
    found = layer(x)
    expected = weft.linear(x, layer.weight, layer.bias)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=0.2)
    layer.float8 = False
    np.testing.assert_array_equal(layer(x).detach().numpy(), expected.detach().numpy())


def test_wrong_quantization_is_refused():
    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        with pytest.raises(ValueError, match="expected i8 or f8_e4m3"):
            weft.fully_shard(nn.Linear(3, 3), mesh, quantized_gather="float32")

    weft.run_ranks(2, body)
