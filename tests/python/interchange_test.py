# SPDX-License-Identifier: Apache-2.0
"""NumPy, DLPack, the buffer protocol and PyTorch: values, and sharing of memory."""

import gc
import sys

import numpy as np
import pytest
import weft
from weft import nn

DTYPES = ["float32", "float64", "float16", "int32", "int64", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0, 2), (2, 3, 4)])
def test_numpy_both_ways_shares_memory(dtype, shape):
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    tensor = weft.from_numpy(array, copy=False)
    assert tensor.shape == shape
    assert tensor.dtype == weft.dtype_named(dtype)
    np.testing.assert_array_equal(tensor.numpy(), array)
    assert tensor.numpy().dtype == array.dtype
    assert array.size == 0 or np.shares_memory(tensor.numpy(), array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_both_ways_shares_memory(dtype):
    array = (np.arange(12) % 2).reshape(3, 4).astype(dtype)
    tensor = weft.from_dlpack(array)
    np.testing.assert_array_equal(np.from_dlpack(tensor), array)
    assert np.shares_memory(np.from_dlpack(tensor), array)
    assert tensor.__dlpack_device__() == (1, 0)


def test_transposed_memory_is_shared_and_gaps_are_copied():
    array = np.arange(24.0).reshape(2, 3, 4)
    for view in (array.T, array.transpose(1, 0, 2), array[:, :, :]):
        tensor = weft.from_numpy(view, copy=False)
        np.testing.assert_array_equal(tensor.numpy(), view)
        assert np.shares_memory(tensor.numpy(), array)
    for view in (array[:, ::2], array[..., 1], array[::-1]):
        tensor = weft.from_numpy(view)
        np.testing.assert_array_equal(tensor.numpy(), view)
        assert not np.shares_memory(tensor.numpy(), array)
        with pytest.raises(ValueError, match="copy"):
            weft.from_numpy(view, copy=False)


def test_read_only_memory_is_copied():
    array = np.arange(4.0)
    array.flags.writeable = False
    tensor = weft.from_numpy(array)
    tensor.fill_(1)
    assert array.tolist() == [0, 1, 2, 3]


def test_memory_lives_as_long_as_either_side():
    tensor = weft.from_numpy(np.arange(1000.0))
    gc.collect()
    assert tensor.sum().item() == 499500
    array = (weft.ones((1000,)) * 3).numpy()
    gc.collect()
    assert array.sum() == 3000


def test_the_buffer_protocol():
    tensor = weft.from_numpy(np.arange(6, dtype=np.int32).reshape(2, 3))
    view = memoryview(tensor)
    assert (view.format, view.shape, view.tolist()) == ("i", (2, 3), [[0, 1, 2], [3, 4, 5]])


def test_what_cannot_be_shown_says_why():
    with pytest.raises(ValueError, match="detach"):
        weft.ones((2,)).requires_grad_().numpy()
    with pytest.raises(ValueError, match="dtype is bf16"):
        weft.ones((2,), dtype=weft.bfloat16).numpy()
    assert weft.ones((2,), dtype=weft.bfloat16).tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="expected cpu"):
        weft.ones((2,), device="meta").numpy()
    with pytest.raises(ValueError, match="numpy: dtype is complex256"):
        weft.from_numpy(np.zeros(2, np.clongdouble))

    def body(world):
        mesh = weft.DeviceMesh(world, {"dp": 2})
        with pytest.raises(ValueError, match="take full_tensor"):
            weft.zeros((4,), mesh=mesh, placements=[weft.Shard(0)]).numpy()

    weft.run_ranks(2, body)


def test_a_capsule_is_taken_once():
    capsule = weft.ones((3,)).__dlpack__()
    assert weft.from_dlpack(capsule).tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="used already"):
        weft.from_dlpack(capsule)


def test_array_and_asarray_take_dtypes():
    tensor = weft.asarray([[1, 2], [3, 4]], dtype=weft.float32)
    assert np.asarray(tensor).dtype == np.float32
    assert np.asarray(tensor, dtype=np.int64).tolist() == [[1, 2], [3, 4]]
    assert weft.tensor([1.5, 2.5]).dtype == weft.float32
    assert weft.tensor([1, 2]).dtype == weft.int64


def test_torch_by_dlpack_shares_memory_bfloat16_too():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        theirs = torch.ones(3, 4, dtype=dtype)
        ours = weft.from_dlpack(theirs)
        assert ours.shape == (3, 4) and str(ours.dtype)[5:] == str(theirs.dtype)[6:]
        back = torch.from_dlpack(ours)
        assert back.data_ptr() == theirs.data_ptr() and torch.equal(back, theirs)
    cut = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)[:, ::2]
    assert weft.from_dlpack(cut).tolist() == cut.tolist()


def test_bytes_in_another_order_or_place_are_converted():
    for array in (np.array([1.5, 2.5], ">f4"), np.array([1, 2], ">i8")):
        assert weft.asarray(array).tolist() == array.tolist()
        with pytest.raises(ValueError, match="byte order"):
            weft.from_numpy(array, copy=False)
    crooked = np.frombuffer(b"x" + np.arange(3.0).tobytes(), np.uint8)[1:].view(np.float64)
    assert weft.from_numpy(crooked).tolist() == [0.0, 1.0, 2.0]


def test_numpy_sees_no_gradients_away():
    leaf = weft.ones((2,)).requires_grad_()
    for take in (np.asarray, np.from_dlpack, memoryview):
        with pytest.raises((ValueError, BufferError)):
            take(leaf)


def test_a_refused_share_keeps_nothing():
    array = np.arange(12.0).reshape(3, 4)[:, ::2]
    before = sys.getrefcount(array)
    for _ in range(5):
        with pytest.raises(ValueError, match="copy"):
            weft.from_numpy(array, copy=False)
    assert sys.getrefcount(array) == before


def test_memory_of_gathered_parameters_is_not_lent():
    """It is released when their unit is done, and views of it would then see other data."""

    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(weft.ones((4, 3)))

        def forward(self, x):
            whole = self.weight.tensor().detach().local()
            for look in (np.from_dlpack, np.asarray, lambda t: t.numpy()):
                with pytest.raises(ValueError, match=r"gathered for forward.*clone\(\)"):
                    look(whole)
            with pytest.raises(BufferError):
                memoryview(whole)
            assert whole.clone().numpy().shape == (4, 3)
            assert np.from_dlpack(whole.clone()).tolist() == whole.tolist()
            return x @ whole.clone()

    def body(world):
        model = Looks()
        weft.fully_shard(model, weft.DeviceMesh(world, {"dp": world.size}))
        model.materialize()
        return model(weft.ones((2, 4))).shape

    assert weft.run_ranks(2, body) == [(2, 3)] * 2
    assert weft.run_ranks(1, body) == [(2, 3)]
