# SPDX-License-Identifier: Apache-2.0
"""weft.linalg and PyTorch's functions of matrices compared with NumPy, in float64 and float32, on
one device and over meshes; decompositions by what they reconstruct."""

import re
import subprocess
import sys

import numpy as np
import pytest
import weft
from weft import linalg as L
import weft.torch as T

draws = np.random.default_rng(7)
SQUARE = draws.normal(size=(3, 5, 5)) + 3 * np.eye(5)
TALL = draws.normal(size=(3, 6, 4))
WIDE = np.swapaxes(TALL, -1, -2).copy()
RIGHT = draws.normal(size=(3, 5, 2))
DEFINITE = SQUARE @ np.swapaxes(SQUARE, -1, -2)
SYMMETRIC = SQUARE + np.swapaxes(SQUARE, -1, -2)
DEFICIENT = TALL[..., :2] @ TALL[..., 2:4, :2].swapaxes(-1, -2)
N = np.linalg


def mt(x):
    return x.swapaxes(-1, -2)


# name: (of weft, of NumPy, operands)
VALUES = {
    "cholesky": (L.cholesky, N.cholesky, (DEFINITE,)),
    "cholesky upper": (
        lambda x: L.cholesky(x, upper=True), lambda x: mt(N.cholesky(x)), (DEFINITE,)
    ),
    "cholesky_ex": (lambda x: L.cholesky_ex(x).L, N.cholesky, (DEFINITE,)),
    "cholesky_solve": (
        lambda b, x: L.cholesky_solve(b, L.cholesky(x)), lambda b, x: N.solve(x, b),
        (RIGHT, DEFINITE),
    ),
    "cholesky_inverse": (lambda x: L.cholesky_inverse(L.cholesky(x)), N.inv, (DEFINITE,)),
    "solve": (L.solve, N.solve, (SQUARE, RIGHT)),
    "solve a vector": (
        L.solve, lambda a, b: N.solve(a, b[:, None])[..., 0], (SQUARE, RIGHT[0, :, 0])
    ),
    "solve from the right": (
        lambda a, b: L.solve(a, b, left=False), lambda a, b: b @ N.inv(a),
        (SQUARE, mt(RIGHT).copy()),
    ),
    "solve_triangular": (
        lambda a, b: L.solve_triangular(a, b, upper=True), lambda a, b: N.solve(np.triu(a), b),
        (SQUARE, RIGHT),
    ),
    "solve_triangular unit": (
        lambda a, b: L.solve_triangular(a, b, upper=False, unitriangular=True),
        lambda a, b: N.solve(np.tril(a, -1) + np.eye(5), b),
        (SQUARE, RIGHT),
    ),
    "lu_solve": (lambda a, b: L.lu_solve(*L.lu_factor(a), b), N.solve, (SQUARE, RIGHT)),
    "lu_solve adjoint": (
        lambda a, b: L.lu_solve(*L.lu_factor(a), b, adjoint=True), lambda a, b: N.solve(mt(a), b),
        (SQUARE, RIGHT),
    ),
    "inv": (L.inv, N.inv, (SQUARE,)),
    "det": (L.det, N.det, (SQUARE,)),
    "slogdet": (L.slogdet, N.slogdet, (SQUARE,)),
    "logdet": (T.logdet, lambda x: np.log(N.det(x)), (DEFINITE,)),
    "eigvalsh": (L.eigvalsh, N.eigvalsh, (SYMMETRIC,)),
    "eigvalsh of a triangle": (
        lambda x: L.eigvalsh(x, UPLO="U"), lambda x: N.eigvalsh(x, UPLO="U"), (SQUARE,)
    ),
    "svdvals": (L.svdvals, lambda x: N.svd(x, compute_uv=False), (WIDE,)),
    "pinv": (L.pinv, N.pinv, (TALL,)),
    "pinv of rank 2": (lambda x: L.pinv(x, rtol=1e-4), lambda x: N.pinv(x, 1e-4), (DEFICIENT,)),
    "matrix_rank": (
        lambda x: L.matrix_rank(x, rtol=1e-4), lambda x: np.full(3, 2), (DEFICIENT,)
    ),
    "matrix_power": (lambda x: [L.matrix_power(x, n) for n in (0, 1, 5)],
                     lambda x: [N.matrix_power(x, n) for n in (0, 1, 5)], (SQUARE,)),
    "inverse power": (lambda x: L.matrix_power(x, -3), lambda x: N.matrix_power(x, -3), (SQUARE,)),
    "cond": (lambda x: [L.cond(x, p) for p in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc")],
             lambda x: [N.cond(x, p) for p in (None, 2, -2, 1, -1, np.inf, -np.inf, "fro", "nuc")],
             (SQUARE,)),
    "matrix_norm": (
        lambda x: [L.norm(x, p, (-2, -1)) for p in (2, -2, 1, -1, np.inf, "fro", "nuc")],
        lambda x: [N.norm(x, p, (-2, -1)) for p in (2, -2, 1, -1, np.inf, "fro", "nuc")],
        (TALL,),
    ),
    "norm over dims": (
        lambda x: L.matrix_norm(x, "nuc", (2, 0), keepdims=True),
        lambda x: N.norm(x, "nuc", (2, 0), keepdims=True),
        (TALL,),
    ),
    "multi_dot": (
        lambda a, b, c: L.multi_dot([a, b, c]), lambda a, b, c: a @ b @ c,
        (TALL[0], WIDE[0], TALL[1, :, 0]),
    ),
    "tensorsolve": (L.tensorsolve, N.tensorsolve,
                    (draws.normal(size=(2, 3, 6)), draws.normal(size=(2, 3)))),
    "tensorinv": (L.tensorinv, N.tensorinv, (draws.normal(size=(2, 3, 3, 2)),)),
    "lstsq": (
        lambda a, b: [*L.lstsq(a, b)[:2]], lambda a, b: [*N.lstsq(a, b, rcond=None)[:2]],
        (TALL[0], draws.normal(size=(6, 2))),
    ),
    "lstsq of wide": (
        lambda a, b: L.lstsq(a, b).solution, lambda a, b: N.lstsq(a, b, rcond=None)[0],
        (WIDE[0], draws.normal(size=(4, 2))),
    ),
}


def arrays_of(found):
    if isinstance(found, (list, tuple)):
        return [a for one in found for a in arrays_of(one)]
    return [found if isinstance(found, np.ndarray) or np.isscalar(found) else
            (found.full_tensor() if found.is_sharded else found).numpy()]


def check(found, expected, dtype):
    bound = 1e-10 if dtype == "float64" else 2e-4
    found, expected = arrays_of(found), arrays_of(expected)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert np.shape(ours) == np.shape(theirs)
        assert np.abs(ours - theirs).max() <= bound * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", VALUES)
def test_equals_numpy(name, dtype):
    ours, theirs, operands = VALUES[name]
    check(ours(*(weft.from_numpy(x.astype(dtype)) for x in operands)), theirs(*operands), dtype)


@pytest.mark.parametrize("axes", [{"a": 4}, {"a": 3}, {"a": 2, "b": 2}])
def test_equals_numpy_over_a_mesh(axes):
    def body(world):
        mesh = weft.DeviceMesh(world, axes)
        draw = np.random.default_rng(5)
        for name, (ours, theirs, operands) in VALUES.items():
            laid_out = []
            for x in operands:
                places = [weft.Shard(d) for d in range(x.ndim)] + [weft.Replicate()]
                layout = [places[i] for i in draw.permutation(len(places))[: len(axes)]]
                laid_out.append(weft.distribute(weft.from_numpy(x.copy()), mesh, layout))
            check(ours(*laid_out), theirs(*operands), "float64")

    weft.run_ranks(4 if len(axes) > 1 else axes["a"], body)


RECONSTRUCTED = {
    "qr": lambda x: (lambda f: (f.Q @ f.R, [f.Q], [weft.triu(f.R) - f.R]))(L.qr(x)),
    "qr complete": lambda x: (lambda f: (f.Q @ f.R, [f.Q, f.Q.mT], []))(L.qr(x, mode="complete")),
    "svd": lambda x: (lambda f: ((f.U * f.S[..., None, :]) @ f.Vh, [f.U, f.Vh.mT], []))(
        L.svd(x, full_matrices=False)
    ),
    "lu": lambda x: (lambda f: (f.P @ f.L @ f.U, [f.P], [weft.tril(f.L) - f.L]))(L.lu(x)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", RECONSTRUCTED)
@pytest.mark.parametrize(
    "shape", [(3, 6, 4), (3, 4, 6), (5, 5), (2, 0, 3), (2, 3, 0), (0, 3, 3), (1, 1)]
)
def test_decompositions_reconstruct(name, dtype, shape):
    x = draws.normal(size=shape).astype(dtype)
    whole, orthonormal, zero = RECONSTRUCTED[name](weft.from_numpy(x))
    bound = 1e-12 if dtype == "float64" else 1e-5
    assert np.abs(whole.numpy() - x).max(initial=0) < bound
    for q in orthonormal:
        q = q.numpy()
        assert np.abs(mt(q) @ q - np.eye(q.shape[-1])).max(initial=0) < bound
    assert all(np.abs(z.numpy()).max(initial=0) == 0 for z in zero)


def test_full_svd_and_eigh():
    for x in (TALL, WIDE):
        u, s, vh = L.svd(weft.from_numpy(x))
        assert u.shape[-1] == x.shape[-2] and vh.shape[-2] == x.shape[-1]
        k = s.shape[-1]
        made = (u.numpy()[..., :k] * s.numpy()[..., None, :]) @ vh.numpy()[..., :k, :]
        assert np.abs(made - x).max() < 1e-12
        assert np.abs(u.numpy() @ mt(u.numpy()) - np.eye(u.shape[-1])).max() < 1e-12
        assert np.abs(vh.numpy() @ mt(vh.numpy()) - np.eye(vh.shape[-1])).max() < 1e-12
    for triangle in ("L", "U"):
        values, vectors = L.eigh(weft.from_numpy(SYMMETRIC), UPLO=triangle)
        made = (vectors.numpy() * values.numpy()[:, None]) @ mt(vectors.numpy())
        assert np.abs(made - SYMMETRIC).max() < 1e-12
    assert L.eigh(weft.eye(2))._fields == ("eigenvalues", "eigenvectors")


def test_words_of_pytorch():
    x, b = weft.from_numpy(SQUARE), weft.from_numpy(RIGHT)
    check(T.inverse(x), N.inv(SQUARE), "float64")
    check(T.pinverse(weft.from_numpy(TALL)), N.pinv(TALL), "float64")
    check(T.lu_solve(b, *L.lu_factor(x)), N.solve(SQUARE, RIGHT), "float64")
    check(
        T.triangular_solve(b, x, upper=False, transpose=True)[0],
        N.solve(mt(np.tril(SQUARE)), RIGHT),
        "float64",
    )
    u, s, v = T.svd(weft.from_numpy(TALL))
    check((u * s[:, None]) @ v.mT, TALL, "float64")
    check(T.norm(weft.from_numpy(TALL[0]), "nuc"), N.norm(TALL[0], "nuc"), "float64")
    check(T.nuclear_norm(weft.from_numpy(TALL)), N.norm(TALL, "nuc", (1, 2)), "float64")
    assert T.linalg is L and T.det is L.det
    assert L.solve(weft.tensor([[2, 0], [0, 4]]), weft.tensor([2, 4])).tolist() == [1, 1]


def test_wrong_uses():
    for call, text in {
        (lambda: L.eigh(weft.eye(2), UPLO="X"), "eigh: UPLO is 'X', expected 'L' or 'U'"),
        (lambda: L.lu(weft.eye(2), pivot=False), "lu: pivot is False, expected True"),
        (lambda: L.matrix_norm(weft.eye(2), axis=1), "matrix_norm: axis is 1, expected two dims"),
        (lambda: L.cholesky(-weft.eye(2)), "cholesky: the matrix .* is not positive definite"),
        (lambda: L.inv(weft.zeros((2, 2))), "inv: the matrix .* is singular"),
        (lambda: L.svd(weft.eye(2) / 0), "svd: the matrix .* has an infinity or a NaN"),
    }:
        with pytest.raises(ValueError, match=text):
            call()
    assert L.inv_ex(weft.zeros((2, 2))).info.item() != 0
    assert L.det(weft.zeros((2, 2))).item() == 0
    assert L.slogdet(weft.zeros((2, 2))).logabsdet.item() == -np.inf
    assert L.cond(weft.zeros((2, 2)), 1).item() == np.inf


def test_the_gradient_of_a_singular_determinant():
    x = weft.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=weft.float64).requires_grad_()
    L.det(x).backward()
    assert np.abs(x.grad.numpy() - [[4, -2], [-2, 1]]).max() < 1e-12


def test_solutions_are_those_of_stable_methods():
    a = np.vander(np.linspace(0, 1, 200), 20)
    b = a @ np.ones(20)
    x = L.lstsq(weft.from_numpy(a), weft.from_numpy(b)).solution.numpy()
    assert np.linalg.norm(a @ x - b) < 1e-12


def test_pivots_are_checked():
    lu, _ = L.lu_factor(weft.from_numpy(np.eye(3)))
    for wrong in (0, 4, 100_000_000):
        pivots = weft.from_numpy(np.array([1, wrong, 3], dtype=np.int32))
        with pytest.raises(ValueError, match=f"lu_solve: pivot 1 is {wrong}, expected 1 to 3"):
            L.lu_solve(lu, pivots, weft.from_numpy(np.ones((3, 2))))


def test_gradients_of_det_at_singular_matrices():
    for a in (np.zeros((3, 3)), np.diag([1e-8, 0, 1e8]), np.ones((3, 3)), np.diag([2.0, 3, 0])):
        x = weft.from_numpy(a).requires_grad_()
        L.det(x).backward()
        minors = [[N.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(3)] for i in range(3)]
        signs = np.array([[1, -1, 1], [-1, 1, -1], [1, -1, 1]])
        assert np.abs(x.grad.numpy() - signs * minors).max() < 1e-12
    both = np.stack([[[1.0, 2], [2, 4]], [[1.0, 2], [3, 5]]])
    x = weft.from_numpy(both).requires_grad_()
    (g,) = weft.autograd.grad(weft.sum(L.det(x)), [x], create_graph=True)
    (second,) = weft.autograd.grad(weft.sum(g * weft.from_numpy(np.array([[1.0, 2], [3, 4]]))), [x])
    assert np.abs(second.numpy() - [[[4, -3], [-2, 1]]] * 2).max() < 1e-12


def test_the_other_triangle_is_not_read():
    n = 600
    a = np.tril(np.ones((n, n))) / n + np.eye(n)
    a[np.triu_indices(n, 1)] = np.nan

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2})
        rows = weft.distribute(weft.from_numpy(a.copy()), mesh, [weft.Shard(0)])
        b = weft.distribute(weft.from_numpy(np.ones((n, 2))), mesh, [weft.Shard(0)])
        x = L.cholesky_solve(b, rows).full_tensor().numpy()
        assert np.abs(np.tril(a) @ (np.tril(a).T @ x) - 1).max() < 1e-11

    weft.run_ranks(2, body)


def test_factors_of_a_cut_batch_are_checked():
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2})
        x = weft.distribute(weft.from_numpy(SQUARE.copy()), mesh, [weft.Shard(0)])
        assert L.lu_factor_ex(x, check_errors=True).LU.shape == (3, 5, 5)

    weft.run_ranks(2, body)


def test_replicas_get_the_factors_of_one_rank():
    """Pivots, signs and vectors of equal eigenvalues depend on processor and threads."""

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 3})
        noise = 1e-9 * world.rank * SYMMETRIC[0]
        x = weft.from_local(weft.from_numpy(np.eye(5) + noise), mesh, [weft.Replicate()])
        made = [*L.eigh(x), *L.svd(x), *L.qr(x), *L.lu_factor(x), L.cholesky(x)]
        return [t.local().numpy().tobytes() for t in made]

    first, *others = weft.run_ranks(3, body)
    assert all(other == first for other in others)


def test_little_address_space_is_one_sentence():
    script = """if True:
    import resource, weft
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * resource.getpagesize() + (100 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    x = weft.eye(64, dtype=weft.float64)
    assert (x @ x == x).all()
    weft.linalg.cholesky(x)
    """
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert re.search("RuntimeError: linalg: address space that ulimit -v leaves is", done.stderr)
