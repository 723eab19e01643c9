# SPDX-License-Identifier: Apache-2.0
"""weft.einsum compared with numpy.einsum, on one device and over meshes in random layouts."""

import numpy as np
import pytest
import weft

draws = np.random.default_rng(11)
SIZES = dict(zip("abcdefghij", (3, 5, 2, 4, 6, 1, 3, 2, 5, 4)))
EQUATIONS = """
ab,bc->ac ab,cb->ac abc,acd->abd ab,ab-> ab,ab->a ab,ab->ab ab,b->a a,a-> a,b->ab aab,b->a
abc,dcb->da
ab,bc,cd->ad ab,bc,cd abc,bd,cd->a ab,ac,ad->bcd abc,cd,de,eb->a a,ab,b-> ab,bc,cd,de->ae
ab,bc,cd,de,ea-> abc,abd,acd,bcd->ab ab,ac,ad,bc,bd,cd->a aabb,bc->c abcd->da ab,f->ab
ab,bc,cd,de,eg,gh,hi,ij->aj ...ab,...bc->...ac ...a,a...->a ab,cd,ef->bdf
""".split()


def operands_of(equation):
    inputs = equation.split("->")[0].split(",")
    shapes = [[SIZES[c] for c in text.replace("...", "ii")] for text in inputs]
    return [draws.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_equals_numpy(equation):
    arrays = operands_of(equation)
    expected = np.einsum(equation, *arrays, optimize=True)
    found = weft.einsum(equation, *(weft.from_numpy(a) for a in arrays)).numpy()
    assert found.shape == expected.shape and np.allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axes", [{"a": 4}, {"a": 3}, {"a": 2, "b": 2}])
def test_equals_numpy_over_a_mesh(axes):
    cases = [(equation, operands_of(equation)) for equation in EQUATIONS]

    def body(world):
        mesh = weft.DeviceMesh(world, axes)
        draw = np.random.default_rng(3)
        for equation, arrays in cases:
            expected = np.einsum(equation, *arrays, optimize=True)
            laid_out = []
            for a in arrays:
                places = [weft.Shard(d) for d in range(a.ndim)] + [weft.Replicate()] * 2
                layout = [places[i] for i in draw.permutation(len(places))[: len(axes)]]
                laid_out.append(weft.distribute(weft.from_numpy(a.copy()), mesh, layout))
            found = weft.einsum(equation, *laid_out).full_tensor().numpy()
            assert np.allclose(found, expected, rtol=1e-12, atol=1e-12), equation

    weft.run_ranks(4 if len(axes) > 1 else axes["a"], body)


def test_dtypes():
    for dtype in ("float32", "int64", "int32", "bool"):
        a = (draws.normal(size=(4, 5)) * 3).astype(dtype)
        b = (draws.normal(size=(5, 2)) * 3).astype(dtype)
        found = weft.einsum("ab,bc->ac", weft.from_numpy(a), weft.from_numpy(b)).numpy()
        assert found.dtype == a.dtype and np.allclose(found, np.einsum("ab,bc->ac", a, b))
    mixed = weft.einsum("a,a->", weft.ones(3), weft.ones(3, dtype=weft.int64))
    assert mixed.dtype == weft.float32 and mixed.item() == 3


def test_the_path():
    a, b, c = weft.ones((2, 100)), weft.ones((100, 3)), weft.ones((3, 50))
    path, text = weft.einsum_path("ij,jk,kl->il", a, b, c)
    assert path == np.einsum_path("ij,jk,kl->il", *(np.ones(x.shape) for x in (a, b, c)))[0]
    assert "ij,jk->ik  [2, 100] x [100, 3] -> [2, 3]  0 bytes" in text
    with pytest.raises(ValueError, match="least intermediate result is 24 bytes"):
        weft.einsum("ij,jk,kl->il", a, b, c, memory=10)


def test_the_path_over_a_mesh():
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 4})
        rows = weft.distribute(weft.ones((64, 8)), mesh, [weft.Shard(0)])
        path, text = weft.einsum_path("ij,ik,il->jkl", rows, rows, rows)
        return text

    text = weft.run_ranks(4, body)[0]
    assert "[64, 8] [S(0)] x [64, 8] [S(0)] ->" in text and "0 bytes received" in text


def test_gradients():
    shapes = ((3, 4), (4, 5), (5, 3))
    a, b, c = (weft.from_numpy(draws.normal(size=s)).requires_grad_() for s in shapes)

    def call(*x):
        return weft.einsum("ab,bc,ca->ab", *x)

    assert weft.autograd.gradcheck(call, (a, b, c))
    assert weft.autograd.gradgradcheck(call, (a, b, c))
