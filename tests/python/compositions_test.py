# SPDX-License-Identifier: Apache-2.0
"""PyTorch's functions that are compositions: the values are NumPy's, the gradients those of the
Jacobian by differences, and both are the same for every layout of the first tensor."""

import math

import numpy as np
import pytest
import weft
import weft.torch as T

DRAW = np.random.default_rng(1)


def draw(*shape, low=-2.0, high=2.0):
    return DRAW.uniform(low, high, shape).astype("float64")


X, Y, Z = draw(5, 4), draw(5, 4), draw(5, 4)
POSITIVE, INNER = draw(5, 4, low=0.1), draw(5, 4, low=0.1, high=0.9)
SQUARE, VECTOR, CUBE = draw(5, 5), draw(5), draw(5, 4, 3)
INDEX = np.array([[0, 2, 1, 3], [3, 3, 0, 1]])
ROWS = np.array([4, 0, 2])
ODD = np.where(X > 1, np.nan, np.where(X < -1, np.inf, X))


def scattered(x, index, values, add):
    made = x.copy()
    columns = np.broadcast_to(np.arange(index.shape[1]), index.shape)
    if add:
        np.add.at(made, (index, columns), values)
    else:
        made[index, columns] = values
    return made


def reduced_at(x, index, values, ufunc):
    made = x.copy()
    ufunc.at(made, (index, np.broadcast_to(np.arange(index.shape[1]), index.shape)), values)
    return made


def rows_put(x, rows, values, add=False):
    made = x.copy()
    if add:
        np.add.at(made, rows, values)
    else:
        made[rows] = values
    return made


# Name: (function of weft, function of NumPy, operands). Functions of weft get tensors.
CASES = {
    "addcmul": (
        lambda x, y, z: T.addcmul(x, y, z, value=0.5),
        lambda x, y, z: x + y * z / 2,
        (X, Y, Z),
    ),
    "addcdiv": (lambda x, y, z: T.addcdiv(x, y, z), lambda x, y, z: x + y / z, (X, Y, POSITIVE)),
    "lerp": (lambda x, y: T.lerp(x, y, 0.3), lambda x, y: x + 0.3 * (y - x), (X, Y)),
    "rsub": (lambda x, y: T.rsub(x, y, alpha=2), lambda x, y: y - 2 * x, (X, Y)),
    "fmod": (T.fmod, np.fmod, (X, POSITIVE)),
    "frac": (T.frac, lambda x: x - np.trunc(x), (X,)),
    "fmax": (T.fmax, np.fmax, (ODD, Y)),
    "fmin": (T.fmin, np.fmin, (ODD, Y)),
    "heaviside": (T.heaviside, np.heaviside, (np.round(X), Y)),
    "ldexp": (T.ldexp, lambda x, y: x * 2**y, (X, Y)),
    "float_power": (T.float_power, np.float_power, (POSITIVE, Y)),
    "exp2": (T.exp2, np.exp2, (X,)),
    "xlogy": (T.xlogy, lambda x, y: x * np.log(y), (X, POSITIVE)),
    "logit": (T.logit, lambda x: np.log(x / (1 - x)), (INNER,)),
    "logaddexp2": (T.logaddexp2, np.logaddexp2, (X, Y)),
    "sinc": (T.sinc, np.sinc, (X,)),
    "deg2rad": (T.deg2rad, np.deg2rad, (X,)),
    "rad2deg": (T.rad2deg, np.rad2deg, (X,)),
    "nan_to_num": (
        lambda x: T.nan_to_num(x, 1.0, 2.0, 3.0),
        lambda x: np.nan_to_num(x, True, 1.0, 2.0, 3.0),
        (ODD,),
    ),
    "isclose": (
        lambda x: T.isclose(x, x, equal_nan=True),
        lambda x: np.isclose(x, x, equal_nan=True),
        (ODD,),
    ),
    "angle": (T.angle, np.angle, (X,)),
    "einsum_product": (
        lambda x, y: T.einsum("ij,kj->ki", x, y),
        lambda x, y: np.einsum("ij,kj->ki", x, y),
        (X, Y),
    ),
    "einsum_trace": (lambda x: T.einsum("ii", x), lambda x: np.einsum("ii", x), (SQUARE,)),
    "einsum_dots": (
        lambda x, y: T.einsum("i...,ij->...j", x, y),
        lambda x, y: np.einsum("i...,ij->...j", x, y),
        (CUBE, X),
    ),
    "addmm": (
        lambda x, y, z: T.addmm(x, y, z, beta=2, alpha=3),
        lambda x, y, z: 2 * x + 3 * y @ z,
        (SQUARE, X, Y.T.copy()),
    ),
    "mv": (T.mv, lambda x, y: x @ y, (SQUARE, VECTOR)),
    "inner": (T.inner, np.inner, (X, Y)),
    "kron": (T.kron, np.kron, (X, SQUARE)),
    "cdist": (T.cdist, lambda x, y: np.linalg.norm(x[:, None] - y[None], axis=-1), (X, Y)),
    "cov": (T.cov, np.cov, (X,)),
    "corrcoef": (T.corrcoef, np.corrcoef, (X,)),
    "trapezoid": (
        lambda x: T.trapezoid(x, dx=0.5, dim=0),
        lambda x: ((x[1:] + x[:-1]) / 4).sum(0),
        (X,),
    ),
    "vander": (T.vander, np.vander, (VECTOR,)),
    "nansum": (
        lambda x: T.nansum(x, 0),
        lambda x: np.nansum(x, 0),
        (np.where(np.isinf(ODD), 0, ODD),),
    ),
    "nanmean": (
        lambda x: T.nanmean(x, 1),
        lambda x: np.nanmean(x, 1),
        (np.where(np.isinf(ODD), 0, ODD),),
    ),
    "std": (lambda x: T.std(x, 0), lambda x: np.std(x, 0, ddof=1), (X,)),
    "var": (lambda x: T.var(x), lambda x: np.var(x, ddof=1), (X,)),
    "max": (lambda x: T.max(x, 1).values, lambda x: np.max(x, 1), (X,)),
    "sort": (lambda x: T.sort(x, 0).values, lambda x: np.sort(x, 0), (X,)),
    "topk": (lambda x: T.topk(x, 2, 0).values, lambda x: -np.sort(-x, 0)[:2], (X,)),
    "kthvalue": (lambda x: T.kthvalue(x, 2, 1).values, lambda x: np.sort(x, 1)[:, 1], (X,)),
    "median": (lambda x: T.median(x, 0).values, lambda x: np.median(x, 0), (X,)),
    "quantile": (lambda x: T.quantile(x, 0.3, 1), lambda x: np.quantile(x, 0.3, 1), (X,)),
    "quantile of two": (
        lambda x: T.quantile(x, [0.3, 0.9], 0, interpolation="nearest"),
        lambda x: np.quantile(x, [0.3, 0.9], 0, method="nearest"),
        (X,),
    ),
    "nanquantile": (
        lambda x: T.nanquantile(x, 0.4, 1),
        lambda x: np.nanquantile(x, 0.4, 1),
        (np.where(X > 1, np.nan, X),),
    ),
    "cummax": (lambda x: T.cummax(x, 0).values, lambda x: np.maximum.accumulate(x, 0), (X,)),
    "cummin": (lambda x: T.cummin(x, 1).values, lambda x: np.minimum.accumulate(x, 1), (X,)),
    "logcumsumexp": (
        lambda x: T.logcumsumexp(x, 0),
        lambda x: np.log(np.cumsum(np.exp(x), 0)),
        (X,),
    ),
    "bucketize": (
        T.bucketize,
        lambda x, edges: np.searchsorted(edges, x),
        (X, np.array([-0.5, 0.0, 0.5])),
    ),
    "logsumexp": (lambda x: T.logsumexp(x, (0, 1)), lambda x: np.log(np.exp(x).sum()), (X,)),
    "gather": (
        lambda x, i: T.gather(x, 0, i),
        lambda x, i: np.take_along_axis(x, i, 0),
        (X, INDEX),
    ),
    "masked_fill": (
        lambda x, y: T.masked_fill(x, y > 0, -3.0),
        lambda x, y: np.where(y > 0, -3.0, x),
        (X, Y),
    ),
    "masked_select": (lambda x, y: T.masked_select(x, y > 0), lambda x, y: x[y > 0], (X, Y)),
    "scatter_add": (
        lambda x, i, v: T.scatter_add(x, 0, i, v),
        lambda x, i, v: scattered(x, i, v[:2], True),
        (X, INDEX, Y),
    ),
    "scatter": (
        lambda x, i, v: T.scatter(x, 0, i[:1], v),
        lambda x, i, v: scattered(x, i[:1], v[:1], False),
        (X, INDEX, Y),
    ),
    "scatter_of_equal_indices": (
        lambda x, i, v: T.scatter(x, 0, i, v),
        lambda x, i, v: scattered(x, i, v[:2], False),
        (X, INDEX, Y),
    ),
    "scatter_reduce_prod": (
        lambda x, i, v: T.scatter_reduce(x, 0, i, v, "prod"),
        lambda x, i, v: reduced_at(x, i, v[:2], np.multiply),
        (X, INDEX, Y),
    ),
    "scatter_reduce_amax": (
        lambda x, i, v: T.scatter_reduce(x, 0, i, v, "amax"),
        lambda x, i, v: reduced_at(x, i, v[:2], np.maximum),
        (X, INDEX, Y),
    ),
    "scatter_reduce_amin_without_self": (
        lambda x, i, v: T.scatter_reduce(x, 0, i, v, "amin", include_self=False),
        lambda x, i, v: reduced_at(scattered(x, i, np.inf, False), i, v[:2], np.minimum),
        (X, INDEX, Y),
    ),
    "index_reduce": (
        lambda x, i, v: T.index_reduce(x, 0, i, v[:3], "mean"),
        lambda x, i, v: np.where(
            np.isin(np.arange(5), i)[:, None], rows_put(x, i, v[:3], True) / 2, x
        ),
        (X, ROWS, Y),
    ),
    "index_add": (
        lambda x, i, v: T.index_add(x, 0, i, v[:3]),
        lambda x, i, v: rows_put(x, i, v[:3], True),
        (X, ROWS, Y),
    ),
    "index_copy": (
        lambda x, i, v: T.index_copy(x, 0, i, v[:3]),
        lambda x, i, v: rows_put(x, i, v[:3]),
        (X, ROWS, Y),
    ),
    "index_fill": (
        lambda x, i: T.index_fill(x, 0, i, 2.0),
        lambda x, i: rows_put(x, i, 2.0),
        (X, ROWS),
    ),
    "select_scatter": (
        lambda x, v: T.select_scatter(x, v, 1, 2),
        lambda x, v: np.concatenate([x[:, :2], v[:, None], x[:, 3:]], 1),
        (X, VECTOR),
    ),
    "isin": (lambda x: T.isin(x, x[:2]), lambda x: np.isin(x, x[:2]), (X,)),
    "argwhere": (lambda x: T.argwhere(x > 0), lambda x: np.argwhere(x > 0), (X,)),
    "one_hot": (lambda i: T.one_hot(i, 5), lambda i: np.eye(5)[i], (ROWS,)),
    "chunk": (
        lambda x: T.cat(T.chunk(x, 3, 0)[::-1]),
        lambda x: np.concatenate([x[4:], x[2:4], x[:2]]),
        (X,),
    ),
    "tensor_split": (lambda x: T.tensor_split(x, 3, 0)[1], lambda x: np.array_split(x, 3)[1], (X,)),
    "unfold": (lambda x: T.unfold(x, 0, 3, 2), lambda x: np.stack([x[0:3].T, x[2:5].T]), (X,)),
    "rot90": (lambda x: T.rot90(x, 3), lambda x: np.rot90(x, 3), (X,)),
    "diag_embed": (
        lambda x: T.diag_embed(x, 1),
        lambda x: np.stack([np.diag(r, 1) for r in x]),
        (X,),
    ),
    "block_diag": (
        lambda x, y: T.block_diag(x, y),
        lambda x, y: np.block([[x, np.zeros((5, 4))], [np.zeros((5, 4)), y]]),
        (X, Y),
    ),
    "hstack": (lambda x, y: T.hstack([x, y]), lambda x, y: np.hstack([x, y]), (X, Y)),
    "column_stack": (
        lambda x, y: T.column_stack([x, y]),
        lambda x, y: np.column_stack([x, y]),
        (X, VECTOR),
    ),
    "cartesian_prod": (
        lambda x: T.cartesian_prod(x, x),
        lambda x: np.stack([np.repeat(x, 5), np.tile(x, 5)], 1),
        (VECTOR,),
    ),
    "constant_pad": (
        lambda x: T.constant_pad_nd(x, (1, 2, -1, 3), 4.0),
        lambda x: np.pad(x[1:], ((0, 3), (1, 2)), constant_values=4.0),
        (X,),
    ),
    "cumulative_trapezoid": (
        lambda x: T.cumulative_trapezoid(x, dim=1),
        lambda x: np.cumsum((x[:, 1:] + x[:, :-1]) / 2, 1),
        (X,),
    ),
}
# Functions that have no gradient, or that jump within the step of the differences.
WITHOUT_GRADIENT = {
    *("isclose", "isin", "argwhere", "one_hot", "heaviside", "fmax", "fmin", "nan_to_num"),
    *("nansum", "nanmean", "angle", "masked_select", "index_fill", "cdist", "corrcoef"),
    "bucketize",
}


def moved_by(step, array, direction):
    return array if isinstance(direction, int) else array + step * direction


def tensors(arrays):
    return [weft.from_numpy(np.ascontiguousarray(a)) for a in arrays]


@pytest.mark.parametrize("name", CASES)
def test_values_are_numpys(name):
    function, expected, arrays = CASES[name]
    with np.errstate(all="ignore"):
        want = np.asarray(expected(*arrays), dtype="float64")
    got = function(*tensors(arrays))
    assert tuple(got.shape) == want.shape
    np.testing.assert_allclose(got.to(weft.float64).numpy(), want, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in CASES if name not in WITHOUT_GRADIENT])
def test_gradients_are_those_of_differences(name):
    function, _, arrays = CASES[name]
    given = tensors(arrays)
    leaves = [t.requires_grad_() for t in given if t.dtype is weft.float64]
    out = function(*given)
    weights = np.cos(np.arange(out.numel())).reshape(out.shape)
    (out * weft.from_numpy(weights)).sum().backward()
    step, draws = 1e-6, np.random.default_rng(3)
    direction = [draws.normal(size=a.shape) if a.dtype.kind == "f" else 0 for a in arrays]
    ahead, behind = (
        function(*tensors([moved_by(s, a, d) for a, d in zip(arrays, direction)])).numpy()
        for s in (step, -step)
    )
    expected = float((weights * (ahead - behind)).sum() / (2 * step))
    moved = [d for d in direction if not isinstance(d, int)]
    got = sum(
        float((leaf.grad.numpy() * d).sum())
        for leaf, d in zip(leaves, moved)
        if leaf.grad is not None
    )
    assert math.isclose(got, expected, rel_tol=1e-5, abs_tol=1e-6)


@pytest.mark.parametrize("ranks", [1, 3])
def test_layouts_do_not_matter(ranks):
    plain = {name: CASES[name][0](*tensors(CASES[name][2])).numpy() for name in CASES}

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": ranks})
        for name, (function, _, arrays) in CASES.items():
            first = weft.from_numpy(np.ascontiguousarray(arrays[0]))
            others = [weft.distribute(t, mesh) for t in tensors(arrays[1:])]
            for dim in range(first.ndim):
                got = function(weft.distribute(first, mesh, [weft.Shard(dim)]), *others)
                np.testing.assert_allclose(
                    got.full_tensor().numpy(),
                    plain[name],
                    rtol=1e-6,
                    atol=1e-9,
                    err_msg=f"{name} {dim}",
                )

    weft.run_ranks(ranks, body, deadline=60)


def gradients_of(function, *values, sharding=lambda t: t):
    leaves = [sharding(weft.tensor(v)).requires_grad_() for v in values]
    weft.sum(function(*leaves)).backward()
    return [leaf.grad.full_tensor().tolist() for leaf in leaves]


INFINITE = math.inf
# Functions whose result 0 gets an infinite gradient, or whose operands are 0: torch 2's gradients.
AT_ZERO = {
    "clamp": (lambda x: T.sqrt(T.clamp(x, min=0)), [[-1.0, 4.0]], [[0.0, 0.25]]),
    "clamp_max": (lambda x: T.sqrt(-T.clamp(x, max=0)), [[-4.0, 1.0]], [[-0.25, 0.0]]),
    "maximum": (
        lambda x, y: T.sqrt(T.maximum(x, y)),
        [[-1.0, 4.0, 0.0], [0.0, 1.0, 0.0]],
        [[0.0, 0.25, INFINITE], [INFINITE, 0.0, INFINITE]],
    ),
    "minimum": (
        lambda x, y: T.sqrt(T.minimum(x, y)),
        [[1.0, 4.0], [0.0, 1.0]],
        [[0.0, 0.0], [INFINITE, 0.5]],
    ),
    "ties": (
        T.maximum,
        [[1.0, 2.0, math.nan], [1.0, 3.0, 1.0]],
        [[0.5, 0.0, 1.0], [0.5, 1.0, 1.0]],
    ),
    "fmax": (
        lambda x, y: T.sqrt(T.fmax(x, y)),
        [[-1.0, 4.0], [0.0, math.nan]],
        [[0.0, 0.25], [INFINITE, 0.0]],
    ),
    "max": (lambda x: T.sqrt(T.max(x)), [[-1.0, -4.0, 0.0]], [[0.0, 0.0, INFINITE]]),
    "min": (lambda x: T.sqrt(T.min(x)), [[1.0, 4.0, 0.0]], [[0.0, 0.0, INFINITE]]),
    "tied_max": (T.max, [[1.0, 2.0, 2.0]], [[0.0, 0.5, 0.5]]),
    "quantile": (
        lambda x: T.sqrt(T.quantile(x, 0.5)),
        [[-1.0, 0.0, 2.0, 0.0]],
        [[0.0, INFINITE, 0.0, INFINITE]],
    ),
    "logit": (lambda x: T.logit(x, eps=0.0), [[1.5, 0.5, -1.0]], [[0.0, 4.0, 0.0]]),
    "xlogy": (
        T.xlogy,
        [[0.0, 1.0, 0.0, 2.0], [2.0, 2.0, 0.0, 1.0]],
        [[math.log(2), math.log(2), 0.0, 0.0], [0.0, 0.5, 0.0, 2.0]],
    ),
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_gradients_at_zero_are_pytorchs(name):
    function, operands, expected = AT_ZERO[name]
    for got, want in zip(gradients_of(function, *operands), expected):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_infinite_gradients_that_are_partial_stay_where_they_are():
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 3})
        w = weft.distribute(weft.tensor([[1.0] * 4] * 3), mesh, [weft.Shard(1)])

        def loss(clipped):  # the gradient of x is Partial
            return lambda x: T.matmul(T.sqrt(clipped(x)).reshape(1, 3), w)

        def whole(t):
            return weft.distribute(t, mesh)

        zeros = whole(weft.tensor([0.0, 0.0, 5.0]))
        return [
            gradients_of(loss(clipped), [-1.0, 4.0, 5.0], sharding=whole)[0][:2]
            for clipped in (lambda x: T.clamp(x, min=0), lambda x: T.maximum(x, zeros))
        ]

    assert weft.run_ranks(3, body, deadline=60)[0] == [[0.0, 1.0], [0.0, 1.0]]


def test_second_derivatives_pass_a_clamp():
    x = weft.tensor([-1.0, 2.0, 3.0]).requires_grad_()
    y = weft.sum(T.clamp(x, min=0) ** 3) + T.max(x) ** 3
    (first,) = weft.autograd.grad([y], [x], create_graph=True)
    weft.sum(first).backward()
    assert x.grad.tolist() == [0.0, 12.0, 36.0]


@pytest.mark.parametrize("dtype", [weft.bool, weft.uint8, weft.int8])
def test_logsumexp_of_integers_is_computed_in_f32(dtype):
    x = weft.tensor([[1, 0], [1, 1]]).to(dtype)
    assert math.isclose(T.logsumexp(x, [0, 1]).item(), math.log(3 * math.e + 1), rel_tol=1e-6)


MIXED = {
    "xlogy": (T.xlogy, lambda x, y: x * math.log(y)),
    "logaddexp2": (T.logaddexp2, lambda x, y: math.log2(2**x + 2**y)),
    "ldexp": (T.ldexp, lambda x, y: x * 2**y),
    "igamma": (T.igamma, lambda x, y: 1 - math.exp(-y)),  # of x = 1
    "igammac": (T.igammac, lambda x, y: math.exp(-y)),
    "alpha": (lambda x, y: T.add(x, y, alpha=0.1), lambda x, y: x + 0.1 * y),
    "rsub": (lambda x, y: T.rsub(y, x, alpha=0.1), lambda x, y: x - 0.1 * y),
}


@pytest.mark.parametrize("name", MIXED)
def test_operands_are_promoted_first(name):
    function, exact = MIXED[name]
    for first, second in ((weft.float64, weft.int64), (weft.float64, weft.float32)):
        one, three = weft.tensor([1]).to(first), weft.tensor([3]).to(second)
        got = function(one, three)
        assert got.dtype is weft.float64
        assert math.isclose(got.item(), exact(1, 3), rel_tol=1e-13)
    for half in (weft.float16, weft.bfloat16):
        got = function(weft.tensor([1]).to(half), weft.tensor([3]))
        assert got.dtype is half
        assert got.item() == weft.tensor(exact(1, 3)).to(half).item()


def test_products_of_narrow_integers_do_not_wrap():
    narrow = weft.tensor([100]).to(weft.int8)
    assert T.add(weft.tensor([1]), narrow, alpha=100).tolist() == [10001]
    assert T.addcmul(weft.tensor([1]), narrow, narrow).tolist() == [10001]


def test_a_partial_is_summed_before_it_is_narrowed():
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2})
        own = weft.tensor([1e9 + 0.25 if world.rank == 0 else -1e9], dtype=weft.float64)
        x = weft.from_local(own, mesh, [weft.Partial()]).requires_grad_()
        weft.sum(x.float()).backward()
        return x.detach().float().full_tensor().item(), x.grad.dtype, x.grad.full_tensor().item()

    assert weft.run_ranks(2, body)[0] == (0.25, weft.float64, 1.0)
