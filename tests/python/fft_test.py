# SPDX-License-Identifier: Apache-2.0
"""weft.fft compared with numpy.fft: every length up to 40 and some long ones, whole and over meshes
of 3, 4 and 2x2 ranks with uneven and empty parts; gradients; refusals."""

import numpy as np
import pytest
import weft
from weft import fft as F

draws = np.random.default_rng(9)
MESHES = [{"a": 3}, {"a": 4}, {"a": 2, "b": 2}]
LENGTHS = [*range(1, 41), 64, 97, 100, 128, 210, 243, 251, 256, 509, 1000, 1024, 2048, 4093, 65536]


def real(*shape):
    return draws.normal(size=shape)


def draw(*shape):
    return real(*shape) + 1j * real(*shape)


def check(found, expected, bound=1e-12, what=""):
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    scale = max(1e-300, np.abs(expected).max(initial=0))
    assert np.abs(found - expected).max(initial=0) <= bound * max(1, scale), what


@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(n):
    for rows in (1, 3, 17) if n < 5000 else (1,):
        z, x = draw(rows, n), real(rows, n)
        for name, values in (("fft", z), ("ifft", z), ("rfft", x), ("ihfft", x)):
            expected = getattr(np.fft, name)(values)
            check(getattr(F, name)(weft.asarray(values)).numpy(), expected, what=f"{name} {rows}")
            narrow = values.astype("complex64" if name in ("fft", "ifft") else "float32")
            found = getattr(F, name)(weft.asarray(narrow)).numpy()
            assert found.dtype == np.complex64
            check(found, expected, 3e-6, f"{name} {rows}")
        half = draw(rows, n // 2 + 1)
        for name in ("irfft", "hfft"):
            expected = getattr(np.fft, name)(half, n)
            check(getattr(F, name)(weft.asarray(half), n).numpy(), expected, what=name)


# name: (of weft, of NumPy, operands)
Z, R = draw(5, 6, 7), real(5, 6, 7)
CASES = {}
for _norm in ("backward", "ortho", "forward"):
    for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        for _n, _axis in ((None, -1), (4, 1), (9, 0)):
            CASES[f"{_name} {_norm} {_n} {_axis}"] = (
                _name, dict(n=_n, axis=_axis, norm=_norm), R if _name in ("rfft", "ihfft") else Z
            )
    for _name in ("fftn", "ifftn", "rfftn", "irfftn"):
        for _s, _axes in ((None, None), ((4, 8), (0, 2)), (None, (1, 0)), ((3, 5), (2, 1))):
            CASES[f"{_name} {_norm} {_s} {_axes}"] = (
                _name, dict(s=_s, axes=_axes, norm=_norm), R if _name == "rfftn" else Z
            )
    for _name in ("fft2", "ifft2", "rfft2", "irfft2"):
        CASES[f"{_name} {_norm}"] = (_name, dict(norm=_norm), R if _name == "rfft2" else Z)
for _name in ("fftshift", "ifftshift"):
    for _axes in (None, 1, (0, 2)):
        CASES[f"{_name} {_axes}"] = (_name, dict(axes=_axes), Z)


@pytest.mark.parametrize("case", CASES)
def test_equals_numpy(case):
    name, arguments, operand = CASES[case]
    expected = getattr(np.fft, name)(operand, **arguments)
    check(getattr(F, name)(weft.asarray(operand), **arguments).numpy(), expected)


@pytest.mark.parametrize("axes", MESHES)
def test_equals_numpy_over_a_mesh(axes):
    expected = {
        case: getattr(np.fft, name)(operand, **arguments)
        for case, (name, arguments, operand) in CASES.items()
    }

    def body(world):
        mesh = weft.DeviceMesh(world, axes)
        layouts = np.random.default_rng(1)
        places = [weft.Shard(0), weft.Shard(1), weft.Shard(2), weft.Replicate()]
        for case, (name, arguments, operand) in CASES.items():
            layout = [places[i] for i in layouts.permutation(4)[: len(axes)]]
            x = weft.distribute(weft.asarray(operand), mesh, layout)
            found = getattr(F, name)(x, **arguments)
            check(found.full_tensor().numpy(), expected[case], what=f"{case} {layout}")

    weft.run_ranks(4 if len(axes) > 1 else axes["a"], body)


def test_a_cut_dim_moves_in_one_exchange():
    values = draw(8, 6, 4)

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 4})
        x = weft.distribute(weft.asarray(values), mesh, [weft.Shard(0)])
        batch = F.fft(x, axis=1)
        assert batch.placements == (weft.Shard(0),)  # a cut of the other dims stays
        moved = F.fft(x, axis=0)
        assert moved.placements[0] in (weft.Shard(1), weft.Shard(2))
        check(moved.full_tensor().numpy(), np.fft.fft(values, axis=0))
        cube = F.fftn(x)
        check(cube.full_tensor().numpy(), np.fft.fftn(values))
        parts = [weft.asarray(values if r == world.rank else 0 * values) for r in range(4)]
        partial = weft.from_local(parts[0], mesh, [weft.Partial()], shape=values.shape)
        assert F.fft(partial).placements == (weft.Partial(),)

    weft.run_ranks(4, body)


def test_many_ranks_and_empty_parts():
    values = draw(2, 5)

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 4})
        for layout in ([weft.Shard(0)], [weft.Shard(1)]):
            x = weft.distribute(weft.asarray(values), mesh, layout)
            check(F.fft(x, axis=1).full_tensor().numpy(), np.fft.fft(values, axis=1))
            check(F.fft(x, axis=0).full_tensor().numpy(), np.fft.fft(values, axis=0))

    weft.run_ranks(4, body)


def weighted(result):
    parts = weft.view_as_real(result) if result.dtype.is_complex else result
    weights = weft.asarray(np.cos(np.arange(parts.size)).reshape(parts.shape))
    if parts.is_sharded:
        weights = weft.distribute(weights, parts.device_mesh)
    return weft.sum(parts * parts * weights)


DIFFERENTIATED = {
    "fft": (lambda x: F.fft(x, n=6, norm="ortho"), draw(2, 5)),
    "ifft": (lambda x: F.ifft(x, axis=0), draw(4, 3)),
    "rfft": (lambda x: F.rfft(x), real(2, 5)),
    "rfft of even": (lambda x: F.rfft(x, n=6, axis=0), real(7, 2)),
    "irfft": (lambda x: F.irfft(x), draw(2, 4)),
    "irfft of odd": (lambda x: F.irfft(x, n=7), draw(2, 4)),
    "hfft": (lambda x: F.hfft(x, n=5, norm="forward"), draw(2, 3)),
    "ihfft": (lambda x: F.ihfft(x), real(2, 6)),
    "fftn": (lambda x: F.fftn(x), draw(3, 4)),
    "rfft2": (lambda x: F.rfft2(x, s=(4, 3)), real(3, 4)),
    "irfftn": (lambda x: F.irfftn(x), draw(3, 3)),
    "fftshift": (lambda x: F.fftshift(F.fft(x)), draw(3, 4)),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients(name):
    function, values = DIFFERENTIATED[name]
    expected = np.zeros_like(values)
    for at in np.ndindex(*values.shape):
        for unit in (1, 1j) if values.dtype.kind == "c" else (1,):
            sides = []
            for sign in (1, -1):
                moved = values.copy()
                moved[at] += sign * unit * 1e-6
                sides.append(weighted(function(weft.asarray(moved))).item())
            expected[at] += unit * (sides[0] - sides[1]) / 2e-6
    x = weft.asarray(values.copy()).requires_grad_()
    weighted(function(x)).backward()
    check(x.grad.numpy(), expected, 1e-6)

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 3})
        for dim in (0, 1):
            x = weft.distribute(weft.asarray(values.copy()), mesh, [weft.Shard(dim)])
            x = x.requires_grad_()
            weighted(function(x)).backward()
            check(x.grad.full_tensor().numpy(), expected, 1e-6)

    weft.run_ranks(3, body)


def test_second_gradients():
    x = weft.asarray(draw(6)).requires_grad_()
    y = weft.sum(weft.abs(F.fft(x)) ** 4)
    (first,) = weft.autograd.grad(y, x, create_graph=True)
    (second,) = weft.autograd.grad(weft.sum(weft.real(first)), x)
    values, step, sums = x.detach().numpy(), 1e-5, []
    for sign in (1, -1):
        moved = weft.asarray(values + sign * step).requires_grad_()
        weft.sum(weft.abs(F.fft(moved)) ** 4).backward()
        sums.append(moved.grad.numpy())
    along_ones = (sums[0] - sums[1]) / (2 * step)
    assert np.isclose(second.numpy().real.sum(), along_ones.real.sum(), rtol=1e-6)


def test_frequencies():
    for n in (1, 2, 5, 8):
        for name in ("fftfreq", "rfftfreq"):
            expected = getattr(np.fft, name)(n, 0.1)
            found = getattr(F, name)(n, d=0.1, dtype=weft.float64)
            check(found.numpy(), expected)
            assert getattr(F, name)(n).dtype is weft.float32

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 3})
        x = F.fftfreq(5, d=0.1, mesh=mesh, placements=[weft.Shard(0)])
        check(x.full_tensor().numpy(), np.fft.fftfreq(5, 0.1), 1e-6)

    weft.run_ranks(3, body)


def test_other_dtypes():
    x = real(4, 5).astype("float32")
    for dtype in (weft.float16, weft.bfloat16, weft.int32):
        assert F.fft(weft.asarray(x).to(dtype)).dtype is weft.complex64
    strided = weft.asarray(real(6, 8)).T[::2]
    check(F.rfft(strided).numpy(), np.fft.rfft(strided.numpy()))


REFUSED = [
    (lambda: F.fft(weft.ones(4), norm="up"), 'fft: norm is "up", expected backward, ortho or'),
    (lambda: F.fft(weft.ones(4), n=0), "fft: length must be at least 1, got 0"),
    (lambda: F.fft(weft.ones(4), axis=1), "fft: dim is 1, expected one of the 1 dims"),
    (lambda: F.irfft(weft.ones(1)), "irfft: length must be at least 1, got 0"),
    (lambda: F.rfft(weft.asarray([1j])), "rfft: dtype is c64, expected a real one"),
    (lambda: F.fftn(weft.ones(4), s=(2, 2)), "fftn: number of lengths is 2, expected at most 1"),
    (
        lambda: F.fftn(weft.ones((4, 4)), s=(2, 2), axes=(0,)),
        "fftn: number of lengths is 2, expected 1, one a dim",
    ),
    (lambda: F.fftn(weft.ones((4, 4)), axes=(0, 0)), "fftn: dim 0 of .* is given twice"),
    (lambda: F.fft2(weft.ones(4)), "fftn: dim is -2, expected one of the 1 dims"),
    (lambda: F.fftn(weft.ones(())), "fftn: number of dims is 0, expected at least 1"),
    (lambda: F.fftfreq(0), "fftfreq: length must be at least 1, got 0"),
    (lambda: F.fftfreq(4, d=0), "fftfreq: d is 0, expected a finite number but 0"),
    (lambda: F.rfftfreq(4, dtype=weft.int64), "rfftfreq: dtype is i64, expected a real floating"),
    (lambda: F.fftfreq(4, device="meta"), "fftfreq: device is meta, expected cpu"),
    (lambda: F.fftshift(weft.ones(4), axes=1), "fftshift: dim is 1"),
    (lambda: F.hfft(weft.ones(3), n=-2), "hfft: length must be at least 1, got -2"),
]


@pytest.mark.parametrize("call, message", REFUSED)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
