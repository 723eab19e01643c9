# SPDX-License-Identifier: Apache-2.0
"""Decompositions and solutions of complex matrices compared with NumPy, in complex128 and
complex64, whole and over meshes; gradients with central differences. opinfo_test.py compares with
PyTorch."""

import numpy as np
import pytest
import weft
from complex_test import differences, draw, loss_of
from weft import linalg as L
import weft.torch as T

N = np.linalg
SQUARE = draw(3, 4, 4) + 3 * np.eye(4)
TALL, RIGHT = draw(3, 5, 3), draw(3, 4, 2)
WIDE = TALL.swapaxes(-1, -2).copy()


def mh(x):
    return x.conj().swapaxes(-1, -2)


def definite(x):
    return x @ mh(x)


DEFINITE = definite(SQUARE)
HERMITIAN = SQUARE + mh(SQUARE)
# name: (of weft, of NumPy, operands)
VALUES = {
    "cholesky": (L.cholesky, N.cholesky, (DEFINITE,)),
    "upper": (lambda x: L.cholesky(x, upper=True), lambda x: mh(N.cholesky(x)), (DEFINITE,)),
    "cholesky_solve": (
        lambda b, x: L.cholesky_solve(b, L.cholesky(x)), lambda b, x: N.solve(x, b),
        (RIGHT, DEFINITE),
    ),
    "cholesky_inverse": (lambda x: L.cholesky_inverse(L.cholesky(x)), N.inv, (DEFINITE,)),
    "solve": (L.solve, N.solve, (SQUARE, RIGHT)),
    "solve a real one": (L.solve, N.solve, (SQUARE, RIGHT.real.copy())),
    "solve from the right": (
        lambda a, b: L.solve(a, b, left=False), lambda a, b: b @ N.inv(a),
        (SQUARE, RIGHT.swapaxes(-1, -2).copy()),
    ),
    "triangular": (
        lambda a, b: L.solve_triangular(a, b, upper=True), lambda a, b: N.solve(np.triu(a), b),
        (SQUARE, RIGHT),
    ),
    "triangular from the right": (
        lambda a, b: L.solve_triangular(a, b, upper=False, left=False),
        lambda a, b: b @ N.inv(np.tril(a)), (SQUARE, RIGHT.swapaxes(-1, -2).copy()),
    ),
    "lu_solve": (lambda a, b: L.lu_solve(*L.lu_factor(a), b), N.solve, (SQUARE, RIGHT)),
    "lu_solve adjoint": (
        lambda a, b: L.lu_solve(*L.lu_factor(a), b, adjoint=True),
        lambda a, b: N.solve(mh(a), b), (SQUARE, RIGHT),
    ),
    "inv": (L.inv, N.inv, (SQUARE,)),
    "det": (L.det, N.det, (SQUARE,)),
    "slogdet": (lambda x: [*L.slogdet(x)], lambda x: [*N.slogdet(x)], (SQUARE,)),
    "logdet": (T.logdet, lambda x: np.log(N.det(x)), (SQUARE,)),
    "eigvalsh": (lambda x: L.eigvalsh(x, "U"), lambda x: N.eigvalsh(x, "U"), (SQUARE,)),
    "svdvals": (L.svdvals, lambda x: N.svd(x, compute_uv=False), (WIDE,)),
    "pinv": (L.pinv, N.pinv, (TALL,)),
    "pinv hermitian": (
        lambda x: L.pinv(x, hermitian=True), lambda x: N.pinv(x, hermitian=True), (SQUARE,)
    ),
    "matrix_rank": (lambda x: L.matrix_rank(x) * 1.0, lambda x: np.full(3, 3.0), (TALL,)),
    "inverse power": (lambda x: L.matrix_power(x, -3), lambda x: N.matrix_power(x, -3), (SQUARE,)),
    "cond": (
        lambda x: [L.cond(x, p) for p in (None, 1, -np.inf, "fro", "nuc")],
        lambda x: [N.cond(x, p) for p in (None, 1, -np.inf, "fro", "nuc")], (SQUARE,),
    ),
    "norm": (
        lambda x: [L.norm(x, p, (-2, -1)) for p in (2, -2, 1, "fro", "nuc")],
        lambda x: [N.norm(x, p, (-2, -1)) for p in (2, -2, 1, "fro", "nuc")], (TALL,),
    ),
    "lstsq": (
        lambda a, b: [*L.lstsq(a, b)[:2]], lambda a, b: [*N.lstsq(a, b, rcond=None)[:2]],
        (TALL[0], draw(5, 2)),
    ),
}
# Functions that return the matrix itself, and matrices with orthonormal columns.
PARTS = {
    "qr": lambda x: (lambda f: (f.Q @ f.R, [f.Q]))(L.qr(x)),
    "qr complete": lambda x: (lambda f: (f.Q @ f.R, [f.Q, f.Q.mH]))(L.qr(x, mode="complete")),
    "svd": lambda x: (lambda f: ((f.U * f.S[..., None, :]) @ f.Vh, [f.U, f.Vh.mH]))(
        L.svd(x, full_matrices=False)
    ),
    "lu": lambda x: (lambda f: (f.P @ f.L @ f.U, [f.P]))(L.lu(x)),
}


def arrays_of(found):
    if isinstance(found, list):
        return [a for one in found for a in arrays_of(one)]
    if isinstance(found, weft.Tensor):
        return [(found.full_tensor() if found.is_sharded else found).numpy()]
    return [np.asarray(found)]


def check(found, expected, bound):
    found, expected = arrays_of(found), arrays_of(expected)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert ours.shape == theirs.shape and ours.dtype.kind == theirs.dtype.kind
        assert np.abs(ours - theirs).max() <= bound * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("name", VALUES)
def test_equals_numpy(name):
    ours, theirs, operands = VALUES[name]
    check(ours(*map(weft.from_numpy, operands)), theirs(*operands), 1e-10)
    narrow = [x.astype("complex64" if x.dtype.kind == "c" else "float32") for x in operands]
    check(ours(*map(weft.from_numpy, narrow)), theirs(*operands), 1e-3)


@pytest.mark.parametrize("shape", [(3, 5, 3), (3, 3, 5), (4, 4), (2, 0, 3), (0, 2, 2), (1, 1)])
@pytest.mark.parametrize("name", PARTS)
def test_decompositions_reconstruct(name, shape):
    x = draw(*shape)
    whole, orthonormal = PARTS[name](weft.from_numpy(x))
    assert np.abs(whole.numpy() - x).max(initial=0) < 1e-12
    for q in orthonormal:
        q = q.numpy()
        assert np.abs(mh(q) @ q - np.eye(q.shape[-1])).max(initial=0) < 1e-12


def test_eigenvectors():
    for dtype, bound in (("complex128", 1e-12), ("complex64", 1e-4)):
        values, v = L.eigh(weft.from_numpy(HERMITIAN.astype(dtype)))
        made = (v.numpy() * values.numpy()[:, None]) @ mh(v.numpy())
        assert np.abs(made - HERMITIAN).max() < bound and not values.dtype.is_complex
    for a in (SQUARE, SQUARE.real.copy(), draws_of_rotation(), np.zeros((0, 0)), np.zeros((2, 2))):
        values, v = L.eig(weft.from_numpy(a))
        values, v = values.numpy(), v.numpy()
        assert np.abs(a @ v - v * values[..., None, :]).max(initial=0) < 1e-12
        assert np.allclose(N.norm(v, axis=-2), 1) and values.dtype == v.dtype == "complex128"
        alone = L.eigvals(weft.from_numpy(a)).numpy()
        assert np.allclose(np.sort_complex(alone), np.sort_complex(values))


def draws_of_rotation():
    return np.array([[0.0, 2, 0, 0], [-2, 0, 0, 0], [0, 0, 3, 1], [0, 0, 0, -3]])


@pytest.mark.parametrize("axes", [{"a": 3}, {"a": 2, "b": 2}])
def test_equals_numpy_over_a_mesh(axes):
    def body(world):
        mesh = weft.DeviceMesh(world, axes)
        layouts = np.random.default_rng(5)

        def laid_out(x):
            places = [weft.Shard(d) for d in range(x.ndim)] + [weft.Replicate()]
            layout = [places[i] for i in layouts.permutation(len(places))[: len(axes)]]
            return weft.distribute(weft.from_numpy(x.copy()), mesh, layout)

        for name, (ours, theirs, operands) in VALUES.items():
            check(ours(*map(laid_out, operands)), theirs(*operands), 1e-10)
        for function in PARTS.values():
            check(function(laid_out(TALL))[0], TALL, 1e-12)
        batch = weft.distribute(weft.from_numpy(SQUARE.copy()), mesh, [weft.Shard(0)])
        assert L.inv(batch).placements == batch.placements == L.eig(batch)[1].placements

    weft.run_ranks(4 if len(axes) > 1 else 3, body)


def test_large_matrices_stay_cut():
    n = 520
    a = draw(n, n) + 60 * np.eye(n)
    b = draw(n, 2)

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 3})
        rows = lambda x: weft.distribute(weft.from_numpy(x.copy()), mesh, [weft.Shard(0)])
        check(rows(a) @ L.solve(rows(a), rows(b)), b, 1e-11)
        factor = L.cholesky(rows(definite(a)))
        assert factor.placements == (weft.Shard(0),)
        check(factor @ factor.mH, definite(a), 1e-12)
        check(rows(definite(a)) @ L.cholesky_solve(rows(b), factor), b, 1e-10)
        tall = L.svd(rows(a[:, :9].copy()), full_matrices=False)
        check((tall.U * tall.S) @ tall.Vh, a[:, :9], 1e-12)
        u, s, v = L.svd_lowrank(rows(a[:, :9].copy()), 9)
        check((u * s) @ v.mH, a[:, :9], 1e-12)

    weft.run_ranks(3, body)


# The operands are [2, 3]: x @ y.mT is square.
FUNCTIONS = {
    "cholesky": lambda x, y: L.cholesky(x @ x.mH) * weft.sum(y),
    "inv": lambda x, y: L.inv(x @ y.mT),
    "solve": lambda x, y: L.solve(x @ y.mT, y),
    "solve right": lambda x, y: L.solve(x @ y.mT, y.mT, left=False),
    "triangular": lambda x, y: L.solve_triangular(x @ y.mT, y, upper=True),
    "triangular right": lambda x, y: L.solve_triangular(x @ y.mT, y.mT, upper=False, left=False),
    "det": lambda x, y: L.det(x @ y.mT),
    "slogdet": lambda x, y: L.slogdet(x @ y.mT)[0] * L.slogdet(x @ x.mT)[1],
    "lu": lambda x, y: L.lu(x)[1] @ L.lu(y.mT)[2] @ y,
    "qr": lambda x, y: weft.concat([*L.qr(x.mT)], axis=0) @ y,
    "eigh": lambda x, y: L.eigh(x @ x.mH)[0] * abs(L.eigh(y @ y.mH)[1]),
    "eigvalsh": lambda x, y: L.eigvalsh(x @ x.mH) * weft.sum(y),
    "svd": lambda x, y: (lambda f: (f.U * (f.S + 1)[None]) @ f.Vh)(L.svd(x, False)) * y,
    "svdvals": lambda x, y: L.svdvals(x) * weft.sum(y),
    "pinv": lambda x, y: L.pinv(x) @ y,
    "lstsq": lambda x, y: L.lstsq(x.mT, y.mT)[0],
    "eig": lambda x, y: abs(L.eig(x @ y.mT)[1]),
    "eigvals": lambda x, y: weft.sum(L.eigvals(x @ y.mT) ** 3),
    "real eig": lambda x, y: weft.sum(L.eig(weft.real(x @ y.mT))[0] ** 3) * weft.sum(y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    function = FUNCTIONS[name]
    a, b = draw(2, 3), draw(2, 3)
    expected = differences(function, a, b)

    def check_gradients(x, y, whole):
        x, y = x.requires_grad_(), y.requires_grad_()
        loss_of(function, x, y).backward()
        for found, theirs in zip((x.grad, y.grad), expected):
            found = np.zeros_like(a) if found is None else whole(found).numpy()
            assert np.allclose(found, theirs, atol=2e-6 * max(1, abs(theirs).max())), name

    check_gradients(weft.from_numpy(a.copy()), weft.from_numpy(b.copy()), lambda g: g)

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 3})
        cut = [weft.distribute(weft.from_numpy(v.copy()), mesh, [weft.Shard(1)]) for v in (a, b)]
        check_gradients(*cut, lambda g: g.full_tensor())

    weft.run_ranks(3, body)


def test_the_gradient_of_a_singular_determinant():
    a = np.array([[1 + 1j, 2j], [2, 2 + 2j]])
    assert abs(a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]) < 1e-15
    x = weft.from_numpy(a.copy()).requires_grad_()
    weft.real(L.det(x)).backward()
    cofactors = np.array([[a[1, 1], -a[1, 0]], [-a[0, 1], a[0, 0]]])
    assert np.abs(x.grad.numpy() - cofactors.conj()).max() < 1e-12


def test_wrong_uses():
    z = weft.from_numpy(SQUARE[0].copy())
    for call, text in (
        (lambda: L.eig(weft.from_numpy(TALL.copy())), "eig: matrices of .* expected square ones"),
        (lambda: L.eigvals(z / 0), "eigvals: the matrix .* has an infinity or a NaN"),
        (lambda: L.eig(weft.eye(2).to(weft.bool)), "eig: dtype is bool, expected f32, f64, c64"),
        (lambda: L.cholesky(-z @ z.mH), "cholesky: the matrix .* is not positive definite"),
        (lambda: L.inv(z * 0), "inv: the matrix .* is singular"),
        (lambda: L.cg(z, weft.ones(4)), "linear operator: dtype is c128, expected a real one"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
