# SPDX-License-Identifier: Apache-2.0
"""weft.linalg's solvers by products compared with NumPy's dense ones, on one device and over
meshes, by matrices and by functions."""

import numpy as np
import pytest
import weft
from weft import linalg as L

draws = np.random.default_rng(3)
N = 37
HALF = draws.normal(size=(N, N))
DEFINITE = HALF @ HALF.T + N * np.eye(N)
SYMMETRIC = HALF + HALF.T
RIGHT = draws.normal(size=(N, 2))
MESHES = [((1,), ("a",)), ((3,), ("a",)), ((2, 2), ("a", "b"))]


def each_rank(check, shape, names):
    def run(world):
        return check(weft.init_device_mesh("cpu", shape, mesh_dim_names=names, world=world))

    weft.run_ranks(int(np.prod(shape)), run)


def layouts(mesh):
    rows = [weft.Shard(0)] * mesh.ndim
    columns = [weft.Shard(1)] + [weft.Replicate()] * (mesh.ndim - 1)
    return rows, columns, [weft.Replicate()] * mesh.ndim


def placed(array, mesh, placements):
    return weft.distribute_tensor(weft.from_numpy(array), mesh, placements)


def relative(actual, expected):
    return np.abs(actual - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("shape,names", MESHES)
def test_conjugate_gradients(shape, names):
    def check(mesh):
        expected = np.linalg.solve(DEFINITE, RIGHT)
        for of_matrix in layouts(mesh):
            a = placed(DEFINITE, mesh, of_matrix)
            for right, solution in ((RIGHT, expected), (RIGHT[:, 0], expected[:, 0])):
                b = placed(right, mesh, layouts(mesh)[0])
                made = L.cg(a, b, rtol=1e-12)
                assert made.converged and 0 < made.steps <= 2 * N and made.residual < 1e-12
                assert made.x.placements == b.placements
                assert relative(made.x.full_tensor().numpy(), solution) < 1e-9
                by_function = L.cg(lambda x: weft.matmul(a, x), b, rtol=1e-12)
                assert by_function.steps == made.steps
                again = L.cg(a, b, made.x, rtol=1e-6)
                assert again.steps == 0 and again.converged

    each_rank(check, shape, names)


def test_preconditioner_and_the_most_steps():
    scaled = DEFINITE * np.outer(10.0 ** np.arange(N), 10.0 ** np.arange(N)) ** (1 / 12)
    a, b = weft.from_numpy(scaled), weft.from_numpy(RIGHT[:, 0])
    diagonal = weft.from_numpy(np.diag(scaled).copy())
    plain = L.cg(a, b, rtol=1e-10)
    better = L.cg(a, b, rtol=1e-10, M=lambda r: r / diagonal)
    assert better.converged and better.steps < plain.steps
    assert relative(better.x.numpy(), np.linalg.solve(scaled, RIGHT[:, 0])) < 1e-7
    few = L.cg(a, b, rtol=1e-10, maxiter=2)
    assert (few.steps, few.converged) == (2, False) and few.residual > 1e-10
    nothing = L.cg(a, weft.zeros_like(b))
    assert (nothing.steps, nothing.converged, float(nothing.x.abs().max())) == (0, True, 0)


@pytest.mark.parametrize("shape,names", MESHES)
@pytest.mark.parametrize("largest", [True, False])
def test_extreme_eigenpairs(shape, names, largest):
    def check(mesh):
        values = np.linalg.eigvalsh(SYMMETRIC)
        for of_matrix in layouts(mesh):
            a = placed(SYMMETRIC, mesh, of_matrix)
            weft.manual_seed(0)
            for k, ncv in ((1, None), (5, 12), (20, None), (N, None)):
                expected = values[-k:] if largest else values[:k]
                made = L.eigsh(a, k, largest=largest, ncv=ncv)
                whole = made.eigenvectors.full_tensor().numpy()
                found = made.eigenvalues.full_tensor().numpy()
                bound = 1e-11 * np.abs(values).max()
                assert np.abs(found - expected).max() < bound
                assert np.abs(SYMMETRIC @ whole - whole * found).max() < bound
                assert np.abs(whole.T @ whole - np.eye(k)).max() < 1e-12

    each_rank(check, shape, names)


def test_eigenpairs_of_functions_and_of_repeated_values():
    step = np.diag([1.0] * 4 + [2.0] * 5 + [3.0] * 3)
    made = L.eigsh(weft.from_numpy(step), 5)
    assert np.abs(made.eigenvalues.numpy() - [2, 2, 3, 3, 3]).max() < 1e-12
    v0 = weft.ones((300,), dtype=weft.float64)

    def laplacian(x):  # of a chain with fixed ends
        return 2 * x - weft.pad(x[1:], 0, 0, 1) - weft.pad(x[:-1], 0, 1, 0)

    least = L.eigsh(laplacian, 3, largest=False, v0=v0, ncv=60)
    expected = 2 - 2 * np.cos(np.pi * np.arange(1, 4) / 301)
    assert np.abs(least.eigenvalues.numpy() - expected).max() < 1e-12


def test_repeated_eigenvalues_and_sizes():
    ring = np.eye(64) * 2 - np.roll(np.eye(64), 1, 0) - np.roll(np.eye(64), -1, 0)
    turned, _ = np.linalg.qr(draws.normal(size=(64, 64)))
    ring = turned @ ring @ turned.T
    expected = np.linalg.eigvalsh(ring)
    for size in (1, 1e200, 1e-200):
        for seed in range(3):
            weft.manual_seed(seed)
            a = weft.from_numpy(ring * size)
            least = L.eigsh(a, 5, largest=False).eigenvalues.numpy() / size
            assert np.abs(least - expected[:5]).max() < 1e-10
            greatest = L.eigsh(a, 4).eigenvalues.numpy() / size
            assert np.abs(greatest - expected[-4:]).max() < 1e-10


def test_columns_of_any_size_and_difficulty():
    values = np.linspace(1, 1e4, 200) * 1e-8
    b = np.stack([np.eye(200)[3], draws.normal(size=200)], 1)
    made = L.cg(weft.from_numpy(np.diag(values)), weft.from_numpy(b), rtol=1e-8)
    assert made.converged and relative(made.x.numpy(), b / values[:, None]) < 1e-6
    for dtype, size in (("float32", 1e25), ("float32", 1e-25), ("float64", 1e-200)):
        right = (RIGHT * size).astype(dtype)
        made = L.cg(weft.from_numpy(DEFINITE.astype(dtype)), weft.from_numpy(right))
        expected = np.linalg.solve(DEFINITE, RIGHT)
        assert made.converged and relative(made.x.numpy() / size, expected) < 1e-4


@pytest.mark.parametrize("shape,names", MESHES)
def test_low_rank_svd(shape, names):
    low = draws.normal(size=(40, 4)) @ draws.normal(size=(4, 9))
    shift = draws.normal(size=(1, 9))

    def check(mesh):
        for of_matrix in layouts(mesh):
            a = placed(low, mesh, of_matrix)
            u, s, v = (x.full_tensor().numpy() for x in L.svd_lowrank(a, 4))
            assert np.abs(u * s @ v.T - low).max() < 1e-10
            assert relative(s, np.linalg.svd(low, compute_uv=False)[:4]) < 1e-10
            centered = low + shift - (low + shift).mean(0)
            s = L.pca_lowrank(placed(low + shift, mesh, of_matrix), 4)[1].full_tensor().numpy()
            assert relative(s, np.linalg.svd(centered, compute_uv=False)[:4]) < 1e-10

    each_rank(check, shape, names)


A, B = weft.from_numpy(DEFINITE), weft.from_numpy(RIGHT)
WRONG = {
    "cg: operator is none, expected a matrix or a function": lambda: L.cg(None, B),
    r"linear operator: matrix is \[37, 37\], expected 5 columns, as the vector \[5\]": lambda: L.cg(
        A, weft.ones((5,), dtype=weft.float64)
    ),
    r"linear operator: matrices of \[37, 2\] have 37 rows and 2 columns, expected square ones": (
        lambda: L.cg(B, B)
    ),
    r"linear operator: tensor is \[2, 3, 3\], expected a matrix": lambda: L.cg(
        weft.ones((2, 3, 3)), B
    ),
    r"linear operator: result is \[2\], expected \[37, 2\], as the vector that it was given": (
        lambda: L.cg(lambda x: x[0], B)
    ),
    r"cg: b is \[1, 37, 2\], expected \[n\] or \[n, k\]": lambda: L.cg(A, B[None]),
    "cg: dtype of b is i64, expected f32 or f64": lambda: L.cg(A, weft.arange(37)),
    r"cg: b \[37, 2\] requires a gradient, expected one that does not": lambda: L.cg(
        A, B.clone().requires_grad_()
    ),
    r"cg: matrix \[37, 37\] requires a gradient, expected one that does not": lambda: L.cg(
        A.clone().requires_grad_(), B
    ),
    "cg: rtol and atol are -1 and 0, expected at least 0": lambda: L.cg(A, B, rtol=-1),
    r"cg: x0 is \[37\], expected \[37, 2\], as b": lambda: L.cg(A, B, B[:, 0]),
    "cg: x . a x is -.* for a direction x of step 0, expected more than 0": lambda: L.cg(-A, B),
    "cg: b has inf, expected finite elements": lambda: L.cg(A, B / 0),
    "cg: maxiter is 0, expected at least 1": lambda: L.cg(A, B, maxiter=0),
    "eigsh: k is 38, expected 1 to 37": lambda: L.eigsh(A, 38),
    "eigsh: v0 is none, expected a vector for an operator without": lambda: L.eigsh(lambda x: x),
    r"eigsh: v0 is \[37, 2\], expected a vector": lambda: L.eigsh(A, v0=B),
    "eigsh: v0 is 0, expected a vector with another": lambda: L.eigsh(A, v0=0 * B[:, 0]),
    "eigsh: vectors is 3, expected more than k, 6": lambda: L.eigsh(A, ncv=3),
    "svd_lowrank: q is 3, expected 1 to 2": lambda: L.svd_lowrank(B, 3),
    "svd_lowrank: iterations is -1, expected at least 0": lambda: L.svd_lowrank(B, 1, -1),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_uses_are_one_sentence(message):
    with pytest.raises(ValueError, match="^" + message):
        WRONG[message]()


def test_other_failures():
    with pytest.raises(TypeError, match="^cg: operator is int, expected a Tensor or a function"):
        L.cg(3, B)
    with pytest.raises(RuntimeError, match="^eigsh: 6 pairs did not converge in 0 restarts"):
        L.eigsh(A, ncv=8, maxiter=0)
