# SPDX-License-Identifier: Apache-2.0
"""complex64 and complex128 compared with NumPy, whole and over meshes of 3, 4 and 2x2 ranks with
uneven and empty parts; gradients with central differences in PyTorch's convention; refusals."""

import numpy as np
import pytest
import weft
import weft.torch as T

draws = np.random.default_rng(5)
MESHES = [{"a": 1}, {"a": 3}, {"a": 4}, {"a": 2, "b": 2}]
BOUNDS = {"complex64": 2e-5, "complex128": 1e-12, "float32": 2e-5, "float64": 1e-12}


def draw(*shape, dtype="complex128"):
    return (draws.normal(size=shape) + 1j * draws.normal(size=shape)).astype(dtype)


def check(found, expected, what=""):
    expected = np.asarray(expected)
    assert found.shape == expected.shape, what
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    bound = BOUNDS.get(str(found.dtype), 0) * scale
    assert np.allclose(found, expected, rtol=0, atol=bound, equal_nan=True), what


def indices(x, *numbers):
    made = weft.asarray(numbers)
    return weft.distribute(made, x.device_mesh) if x.is_sharded else made


X, Y = draw(5, 7), draw(5, 7)
# name: (of weft, of NumPy, operands)
OPS = {
    "add": (lambda x, y: x + y, None, (X, Y)),
    "subtract": (lambda x, y: x - y, None, (X, Y)),
    "multiply": (lambda x, y: x * y, None, (X, Y)),
    "divide": (lambda x, y: x / y, None, (X, Y)),
    "broadcast": (lambda x, y: x * y, None, (X, Y[:, :1].copy())),
    "with a real one": (lambda x, y: x * y, None, (X, Y.real.copy())),
    "with numbers": (lambda x: (2 * x + 1j) / (3 - 2j) - 1.5 + 1 / x, None, (X,)),
    "a complex number": (lambda x: x * 2j, None, (X.real.copy(),)),
    "negative": (lambda x: -x, None, (X,)),
    "pow": (lambda x, y: x**y, None, (X, Y)),
    "square": (lambda x: x**2, None, (X,)),
    "cube": (lambda x: x**3, None, (X,)),
    "abs": (abs, None, (X,)),
    "equal": (lambda x, y: x == y, None, (X, np.where(X.real > 0, X, Y))),
    "not equal": (lambda x: x != 0, None, (X,)),
    "matmul": (lambda x, y: x @ y, None, (X, draw(7, 3))),
    "batched matmul": (lambda x, y: x @ y, None, (draw(3, 4, 5), draw(3, 5, 2))),
    "large matmul": (lambda x, y: x @ y.T, None, (draw(33, 70), draw(31, 70))),
    "transposed": (lambda x: x.T, None, (X,)),
    "slices": (lambda x: x[1:, ::2], None, (X,)),
    "reshape": (lambda x: x.reshape((7, 5)), None, (X,)),
    "empty": (lambda x: x * x, None, (draw(0, 3),)),
    "no dims": (lambda x: x * x, None, (draw(),)),
    **{
        name: (lambda x, f=name: getattr(weft, f)(x), lambda x, f=name: getattr(np, f)(x), (X,))
        for name in "exp log sqrt sin cos tan sinh cosh tanh conj real imag expm1 log1p".split()
    },
    **{
        name: (
            lambda x, f=name: getattr(weft, f)(x),
            lambda x, f=name: getattr(np, "arc" + f[1:])(x),
            (X,),
        )
        for name in "asin acos atan asinh acosh atanh".split()
    },
    "angle": (weft.angle, np.angle, (X,)),
    "sign": (weft.sign, lambda x: x / np.abs(x), (X,)),
    "log2": (weft.log2, lambda x: np.log(x) / np.log(2), (X,)),
    "reciprocal": (lambda x: 1 / x, None, (X,)),
    "sigmoid": (weft.sigmoid, lambda x: 1 / (1 + np.exp(-x)), (X,)),
    "sum": (weft.sum, np.sum, (X,)),
    "sum of rows": (lambda x: weft.sum(x, axis=1), lambda x: np.sum(x, axis=1), (X,)),
    "mean": (lambda x: weft.mean(x, axis=0), lambda x: np.mean(x, axis=0), (X,)),
    "prod": (lambda x: weft.prod(x, axis=1), lambda x: np.prod(x, axis=1), (X,)),
    "prod of all": (weft.prod, np.prod, (X,)),
    "cumulative sum": (
        lambda x: weft.cumulative_sum(x, axis=1), lambda x: np.cumsum(x, axis=1), (X,)
    ),
    "norm": (weft.linalg.vector_norm, np.linalg.norm, (X,)),
    "any": (weft.any, np.any, (X,)),
    "where": (
        lambda x, y: weft.where(weft.real(x) > 0, x, y), lambda x, y: np.where(x.real > 0, x, y),
        (X, Y),
    ),
    "isfinite": (weft.isfinite, np.isfinite, (X,)),
    "isnan": (weft.isnan, np.isnan, (X,)),
    "isinf": (weft.isinf, np.isinf, (X,)),
    "concat": (
        lambda x, y: weft.concat([x, y], axis=1), lambda x, y: np.concatenate([x, y], axis=1),
        (X, Y),
    ),
    "stack": (lambda x, y: weft.stack([x, y]), lambda x, y: np.stack([x, y]), (X, Y)),
    "flip": (lambda x: weft.flip(x, axis=0), lambda x: np.flip(x, axis=0), (X,)),
    "roll": (lambda x: weft.roll(x, 2, axis=1), lambda x: np.roll(x, 2, axis=1), (X,)),
    "take": (
        lambda x: weft.take(x, indices(x, 4, 0, 2), axis=0), lambda x: x[[4, 0, 2]], (X,)
    ),
    "tril": (weft.tril, np.tril, (X,)),
    "expand": (
        lambda x: weft.broadcast_to(x, (3, 5, 7)), lambda x: np.broadcast_to(x, (3, 5, 7)), (X,)
    ),
    "to complex": (
        lambda x: x.to(weft.complex128), lambda x: x.astype("complex128"), (X.real.copy(),)
    ),
    "to bool": (lambda x: x.to(weft.bool), lambda x: x.astype(bool), (X,)),
    "tensordot": (weft.tensordot, np.tensordot, (draw(3, 4, 5), draw(4, 5, 2))),
    "einsum": (
        lambda x, y: weft.einsum("ab,cb->ac", x, y), lambda x, y: np.einsum("ab,cb->ac", x, y),
        (X, Y),
    ),
    "vecdot": (weft.vecdot, np.vecdot if hasattr(np, "vecdot") else None, (X, Y)),
    "view_as_real": (
        weft.view_as_real, lambda x: np.stack([x.real, x.imag], axis=-1), (X,)
    ),
    "view_as_complex": (
        weft.view_as_complex, lambda x: x[..., 0] + 1j * x[..., 1], (draws.normal(size=(3, 4, 2)),)
    ),
    "complex": (
        lambda x, y: weft.complex(x, y), lambda x, y: x + 1j * y, (X.real.copy(), Y.real.copy())
    ),
    "polar": (
        weft.polar, lambda x, y: x * np.exp(1j * y), (abs(X.real), Y.real.copy())
    ),
}


def reference_of(name):
    ours, theirs, operands = OPS[name]
    if name == "vecdot" and theirs is None:
        return (np.conj(operands[0]) * operands[1]).sum(-1)
    return (theirs or ours)(*operands)


@pytest.mark.parametrize("name", OPS)
def test_equals_numpy(name):
    function, _, operands = OPS[name]
    expected = reference_of(name)
    check(function(*(weft.asarray(a.copy()) for a in operands)).numpy(), expected, name)
    narrow = [
        weft.asarray(a.astype("complex64" if a.dtype.kind == "c" else "float32")) for a in operands
    ]
    found = function(*narrow).numpy()
    assert found.dtype.name in ("complex64", "float32", "bool", "complex128"), found.dtype
    check(found.astype("complex64"), expected, name)


@pytest.mark.parametrize("axes", MESHES[1:])
def test_equals_numpy_over_a_mesh(axes):
    expected = {name: reference_of(name) for name in OPS}

    def body(world):
        mesh = weft.DeviceMesh(world, axes)
        layout_draws = np.random.default_rng(2)
        for name, (function, _, operands) in OPS.items():
            for _ in range(3):
                laid_out = []
                for a in operands:
                    places = [weft.Shard(d) for d in range(a.ndim)] + [weft.Replicate()] * 2
                    chosen = layout_draws.permutation(len(places))[: len(axes)]
                    layout = [places[i] for i in chosen]
                    laid_out.append(weft.distribute(weft.asarray(a.copy()), mesh, layout))
                found = function(*laid_out).full_tensor().numpy()
                check(found, expected[name], f"{name} {[x.placements for x in laid_out]}")

    weft.run_ranks(4 if len(axes) > 1 else axes["a"], body)


@pytest.mark.parametrize("axes", MESHES)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_redistribution(axes, dtype):
    ranks = 4 if len(axes) > 1 else axes["a"]
    parts = [draw(5, 3, dtype=dtype) for _ in range(ranks)]
    whole = sum(parts)

    def body(world):
        mesh = weft.DeviceMesh(world, axes)
        partial = [weft.Partial()] * len(axes)
        x = weft.from_local(weft.asarray(parts[world.rank]), mesh, partial, shape=(5, 3))
        for layout in ([weft.Shard(0)], [weft.Shard(1)], [weft.Replicate()]):
            moved = x.redistribute(layout * len(axes))
            check(moved.full_tensor().numpy(), whole, str(layout))
            for back in ([weft.Shard(1)], [weft.Replicate()], [weft.Shard(0)]):
                check(moved.redistribute(back * len(axes)).full_tensor().numpy(), whole)
        # Ops that are linear keep the Partial.
        for function in (weft.conj, weft.real, weft.imag, weft.view_as_real, lambda t: t * 2j):
            check(function(x).full_tensor().numpy(), function(weft.asarray(whole)).numpy())
        average = weft.from_local(
            weft.asarray(parts[world.rank]), mesh, [weft.Partial("avg")] * len(axes), shape=(5, 3)
        )
        check(average.full_tensor().numpy(), whole / ranks)

    weft.run_ranks(ranks, body)


def test_numpy_and_dlpack_share_memory():
    for dtype in ("complex64", "complex128"):
        array = draw(3, 4, dtype=dtype)
        x = weft.from_numpy(array)
        assert x.dtype.name == dtype and x.dtype.itemsize == array.dtype.itemsize
        array[1, 2] = 5 - 3j
        assert x[1, 2].item() == 5 - 3j and x.tolist() == array.tolist()
        assert np.shares_memory(x.numpy(), array)
        assert np.shares_memory(np.from_dlpack(x), array)
        check(weft.from_dlpack(array.T).numpy(), array.T)
        check(weft.asarray(array[::2, ::-1]).numpy(), array[::2, ::-1])
        assert memoryview(x).format == ("Zf" if dtype == "complex64" else "Zd")


def test_dtypes_and_numbers():
    assert weft.asarray([1j, 2]).dtype == weft.complex64
    assert weft.asarray(draw(2)).dtype == weft.complex128
    assert weft.full((2,), 1j).dtype == weft.complex64
    assert weft.full((2,), 2 - 1j, dtype=weft.complex128).tolist() == [2 - 1j] * 2
    real, integers = weft.ones(2, dtype=weft.float64), weft.arange(2)
    assert (real * 1j).dtype == weft.complex128 and (integers + 1j).dtype == weft.complex64
    assert (weft.ones(2) * weft.asarray(draw(2))).dtype == weft.complex128
    wide = weft.asarray(1j, dtype=weft.complex128)
    assert (weft.ones(2) * wide).dtype == (wide * weft.ones(2)).dtype == weft.complex64
    assert (weft.ones(()) * wide).dtype == (real * wide).dtype == weft.complex128
    assert (weft.asarray([1j]) * weft.asarray(1.0, dtype=weft.float64)).dtype == weft.complex64
    assert weft.promote(weft.complex64, weft.float64) is weft.complex128
    assert weft.promote(weft.complex64, weft.int64) is weft.complex64
    assert weft.result_type(weft.ones(2), 1j) is weft.complex64
    assert weft.can_cast(weft.float32, weft.complex64)
    assert not weft.can_cast(weft.complex64, weft.float32)
    assert weft.isdtype(weft.complex64, "complex floating")
    assert not weft.isdtype(weft.complex64, "real floating")
    assert weft.finfo(weft.complex128).bits == 64
    assert not weft.complex64.is_floating_point and weft.complex64.is_complex
    x = weft.asarray([3 - 4j])
    assert complex(x) == x.item() == 3 - 4j and bool(x) and abs(x).item() == 5
    assert x.real.item() == 3 and x.imag.item() == -4 and x.conj().item() == 3 + 4j
    assert repr(weft.asarray([1.5 - 2j, 1j])).endswith("[1.5000-2.j, 0.0000+1.j]")
    x += 1j
    assert x.item() == 3 - 3j
    x[0] = 2j
    assert x.item() == 2j


FUNCTIONS = {
    "product": lambda x, y: x * y + x,
    "quotient": lambda x, y: x / y,
    "numbers": lambda x, y: (2j * x - 1) / (3 + y) + 1j / x,
    "conj": lambda x, y: weft.conj(x) * y,
    "exp": lambda x, y: weft.exp(x) * weft.log(y),
    "sqrt": lambda x, y: weft.sqrt(x) * weft.sin(y) + weft.cos(x),
    "tanh": lambda x, y: weft.tanh(x) + weft.atan(y),
    "asin": lambda x, y: weft.asin(x) + weft.acosh(y),
    "pow": lambda x, y: x**y,
    "cube": lambda x, y: x**3 * y,
    "matmul": lambda x, y: x @ y.T,
    "batched": lambda x, y: x.reshape((2, 1, 3)) @ y.reshape((2, 3, 1)),
    "abs": lambda x, y: weft.abs(x) * weft.abs(y),
    "angle": lambda x, y: weft.angle(x) * weft.abs(y),
    "parts": lambda x, y: weft.real(x) * weft.imag(y),
    "views": lambda x, y: weft.view_as_real(x) * weft.view_as_real(y),
    "sums": lambda x, y: weft.sum(x, axis=0) * weft.mean(y, axis=1)[0],
    "prod": lambda x, y: weft.prod(x, axis=1) * weft.prod(y),
    "cumulative": lambda x, y: weft.cumulative_sum(x, axis=1) * y,
    "moves": lambda x, y: weft.concat([x[:, 1:], weft.flip(y, axis=0)], axis=1) * 2,
    "take": lambda x, y: weft.take(x, indices(x, 1, 0, 1), axis=0) * y[:1],
    "where": lambda x, y: weft.where(weft.real(x) > 0, x * x, y),
    "mixed": lambda x, y: weft.real(x) * y,
    "sgn": lambda x, y: weft.sign(x) * y,
    "norm": lambda x, y: weft.linalg.vector_norm(x) * y,
    "polar": lambda x, y: weft.polar(weft.abs(x), weft.imag(y)) + weft.complex(x.real, y.imag),
}


def loss_of(function, x, y):
    """A real loss with another weight for each part of each element."""
    result = function(x, y)
    parts = weft.view_as_real(result) if result.dtype.is_complex else result
    weights = weft.asarray(np.cos(np.arange(parts.size)).reshape(parts.shape))
    if parts.is_sharded:
        weights = weft.distribute(weights, parts.device_mesh)
    return weft.sum(parts * weights)


def differences(function, x, y):
    """dL/dRe x + i dL/dIm x by central differences."""
    gradients = []
    for i, a in enumerate((x, y)):
        gradient = np.zeros_like(a)
        for at in np.ndindex(*a.shape):
            for step, unit in ((1e-6, 1), (1e-6j, 1j)):
                sides = []
                for sign in (1, -1):
                    moved = a.copy()
                    moved[at] += sign * step
                    operands = [moved, y] if i == 0 else [x, moved]
                    sides.append(loss_of(function, *map(weft.asarray, operands)).item())
                gradient[at] += unit * (sides[0] - sides[1]) / 2e-6
        gradients.append(gradient)
    return gradients


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    function = FUNCTIONS[name]
    a, b = draw(2, 3), draw(2, 3)
    expected = differences(function, a, b)
    x, y = (weft.asarray(v.copy()).requires_grad_() for v in (a, b))
    loss_of(function, x, y).backward()
    for found, theirs in zip((x.grad, y.grad), expected):
        found = np.zeros_like(a) if found is None else found.numpy()
        assert np.allclose(found, theirs, atol=1e-6 * max(1, abs(theirs).max())), name

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 3})
        for layout in ([weft.Shard(0)], [weft.Shard(1)]):
            p, q = (weft.distribute(weft.asarray(v.copy()), mesh, layout) for v in (a, b))
            p, q = p.requires_grad_(), q.requires_grad_()
            loss_of(function, p, q).backward()
            for found, theirs in zip((p.grad, q.grad), expected):
                found = np.zeros_like(a) if found is None else found.full_tensor().numpy()
                assert np.allclose(found, theirs, atol=1e-6 * max(1, abs(theirs).max())), name

    weft.run_ranks(3, body)


def test_gradients_of_real_operands_are_real():
    x = weft.asarray([1.0, -2.0]).requires_grad_()
    z = weft.asarray([1 + 2j, 3 - 1j])
    weft.sum(weft.real(x * z)).backward()
    assert x.grad.dtype is weft.float32 and x.grad.tolist() == [1, 3]
    with pytest.raises(ValueError, match="dtype of root 0 is c128, expected a real one"):
        weft.sum(weft.asarray(draw(2)).requires_grad_()).backward()


K = 1 + 2j  # its real part is 1, which must not count as 1
SCALED = {
    "add": (lambda x, y: T.add(x, y, alpha=K), lambda x, y: x + K * y),
    "sub_": (lambda x, y: x.clone().sub_(y, alpha=K), lambda x, y: x - K * y),
    "rsub": (lambda x, y: T.rsub(x, y, alpha=K), lambda x, y: y - K * x),
    "addmm": (lambda x, y: T.addmm(x, x, y.T @ x, beta=K, alpha=K),
              lambda x, y: K * x + K * (x @ (y.T @ x))),
    "addr": (lambda x, y: T.addr(x, x[:, 0], y[0], beta=1, alpha=K),
             lambda x, y: x + K * np.outer(x[:, 0], y[0])),
    "addcmul": (lambda x, y: T.addcmul(x, x, y, value=K), lambda x, y: x + K * x * y),
    "addcdiv_": (lambda x, y: x.clone().addcdiv_(x, y, value=K), lambda x, y: x + K * x / y),
    "index_add": (lambda x, y: T.index_add(x, 1, indices(x, 0, 1, 2), y, alpha=K),
                  lambda x, y: x + K * y),
    "pow_": (lambda x, y: x.clone().pow_(y), lambda x, y: x**y),
    **{
        f"{name}_": (
            lambda x, y, f=name: getattr(x.clone(), f + "_")() * y,
            lambda x, y, f=name: IN_PLACE[f](x) * y,
        )
        for name in ("exp", "log", "neg", "rsqrt", "sigmoid", "sqrt", "square", "tanh")
    },
}
IN_PLACE = {
    "exp": np.exp, "log": np.log, "neg": np.negative, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "sqrt": np.sqrt, "square": np.square,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("name", SCALED)
def test_complex_factors_and_changes_in_place(name):
    ours, theirs = SCALED[name]
    a, b = draw(2, 3), draw(2, 3)
    check(ours(weft.asarray(a.copy()), weft.asarray(b.copy())).numpy(), theirs(a, b), name)
    expected = differences(ours, a, b)

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 3})
        x, y = (weft.distribute(weft.asarray(v.copy()), mesh, [weft.Shard(1)]) for v in (a, b))
        loss_of(ours, x.requires_grad_(), y.requires_grad_()).backward()
        for z, gradient in zip((x, y), expected):
            assert np.allclose(z.grad.full_tensor().numpy(), gradient, atol=1e-5), name

    weft.run_ranks(3, body)
    real = weft.ones(2, 3)
    if name == "addcmul":
        assert T.addcmul(real, real, real, value=K).tolist() == [[2 + 2j] * 3] * 2


def test_gradients_at_zero_are_those_of_pytorch():
    for function, expected in ((weft.sign, 0), (weft.sqrt, np.inf * (1 + 1j)), (weft.abs, 0)):
        x = weft.asarray(np.zeros(1, dtype="complex128")).requires_grad_()
        y = function(x)
        weight = weft.asarray([1 + 2j] if y.dtype.is_complex else [2.0]).to(y.dtype)
        (found,) = weft.autograd.grad([y], [x], [weight])
        assert found.numpy()[0] == expected, function


def test_second_gradients():
    x = weft.asarray(np.array([0.3 + 0.4j])).requires_grad_()
    y = weft.real(weft.sum(weft.exp(x * x)))
    (first,) = weft.autograd.grad(y, x, create_graph=True)
    (second,) = weft.autograd.grad(weft.sum(weft.real(first)), x)
    z = 0.3 + 0.4j
    # The gradient of Re f is conj f', and that of Re f' is conj f''.
    assert np.allclose(first.detach().numpy(), np.conj(2 * z * np.exp(z * z)))
    assert np.allclose(second.numpy(), np.conj((2 + 4 * z * z) * np.exp(z * z)))


REFUSED = [
    (lambda z: z < 1, "less: operand 0 .* is c64, expected a real dtype; complex numbers have no"),
    (lambda z: weft.max(z), "max: operand 0 .* is c64, expected a real dtype"),
    (lambda z: weft.argmax(z, axis=0), "argmax: operand 0 .* is c64"),
    (lambda z: weft.sort(z), "sort: operand 0 .* is c64"),
    (lambda z: weft.maximum(z, z), "maximum: operand 0 .* is c64"),
    (lambda z: weft.floor(z), "floor: operand 0 .* is c64, expected a real dtype; the op has no"),
    (lambda z: weft.erf(z), "erf: operand 0 .* is c64"),
    (lambda z: weft.softmax(z, axis=0), "softmax.*: operand 0 .* is c64"),
    (lambda z: weft.linalg.eigsh(z[None] * z[:, None], 1), "linear operator: dtype is c64"),
    (lambda z: z.to(weft.float32), "cast: dtype of the tensor .* is c64, expected a real one for"),
    (lambda z: weft.fill_(weft.ones(2), 1j), "fill_: value is complex, expected a real number"),
    (lambda z: weft.ones(2).pow_(z), "pow_: the result is c64, expected one that the tensor"),
    (lambda z: z.abs_(), "abs_: operand 0 .* is c64"),
    (lambda z: weft.ones(2).add_(1j), "the result is c64, expected one that the tensor of f32"),
    (lambda z: weft.arange(0, 1j), "arange: a number is complex, expected real ones"),
    (lambda z: weft.arange(3, dtype=weft.complex64), "arange: dtype is c64, expected a real one"),
    (lambda z: weft.linspace(0, 1, 3, dtype=weft.complex64), "linspace: dtype is c64"),
    (lambda z: weft.uniform_(z), "uniform_: dtype is c64"),
    (lambda z: weft.complex(z, z), "complex: dtypes are c64 and c64, expected both f32"),
    (lambda z: weft.view_as_real(weft.ones(2)), "view_as_real: dtype is f32, expected a complex"),
    (lambda z: weft.view_as_complex(weft.ones(3)), "shape is .3., expected a last dim of size 2"),
    (lambda z: weft.view_as_complex(z), "view_as_complex: dtype is c64, expected f32 or f64"),
    (lambda z: weft.clip(z, 0, 1), "is c64"),
    (lambda z: weft.clip(weft.ones(2), 1j), "maximum: operand 0 .* is c64"),
]


@pytest.mark.parametrize("call, message", REFUSED)
def test_refusals(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(weft.asarray([1 + 2j, 3]))


def test_ranks_refuse_a_greatest_complex_number():
    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 2})
        part = weft.asarray([1j])
        with pytest.raises(ValueError, match="is c64, expected a real one; complex numbers have"):
            x = weft.from_local(part, mesh, [weft.Partial("max")], shape=(1,))
            x.full_tensor()

    weft.run_ranks(2, body)


class Layer(weft.nn.Module):
    def __init__(self, values):
        super().__init__()
        self.weight = weft.nn.Parameter(values)


def test_checkpoints(tmp_path):
    values = draw(5, 3, dtype="complex64")

    def parts_of(world, given, dim):
        mesh = weft.DeviceMesh(world, {"a": 3})
        model, state = Layer(weft.distribute(weft.asarray(given), mesh, [weft.Shard(dim)])), None
        state = weft.TrainingState()
        state.add("model", model)
        return model, state

    def save(world):
        _, state = parts_of(world, values.astype("complex128"), 0)
        with pytest.raises(ValueError, match="safetensors: dtype of a tensor is c128, expected"):
            weft.CheckpointSaver(world, str(tmp_path / "wide")).save(1, state)
        _, state = parts_of(world, values, 0)
        return str(weft.CheckpointSaver(world, str(tmp_path / "narrow")).save(1, state))

    path = weft.run_ranks(3, save)[0]

    def load(world):
        model, state = parts_of(world, 0 * values, 1)
        weft.load(path, state)
        check(weft.Tensor(model.weight).full_tensor().detach().numpy(), values)

    weft.run_ranks(3, load)


def test_numbers_of_one_element_only():
    with pytest.raises(ValueError, match="item: dtype is c64, expected a real one; complex_item"):
        float(weft.asarray([1j]))


# Ops that take complex operands but are not linear in all of them together, which OPS covers.
NOT_LINEAR = set(
    "mul div add_number number_div matmul contraction linear_weight_gradient equal not_equal "
    "logical_and logical_or logical_xor logical_not isfinite isnan isinf where cast convert "
    # complex_linalg_test.py has these
    "cholesky_factor solve_triangle lu_factor qr_factor symmetric_eigen symmetric_eigenvalues "
    "singular_value_decomposition singular_values".split()
)


def is_real(dtype):
    return dtype is weft.float32 or dtype is weft.float64


def test_every_op_is_right_or_refuses_by_name():
    """An op that takes complex operands and is none of NOT_LINEAR moves or adds elements: the
    result is that of the real parts plus i times that of the imaginary ones."""
    taken, refused = set(), set()
    for op in weft.all_ops():
        for shapes, dtypes, structure, values, (low, high) in op.samples:
            which = [i for i, dtype in enumerate(dtypes) if is_real(dtype)]
            operands = []
            for i, (shape, dtype) in enumerate(zip(shapes, dtypes)):
                real = draws.uniform(low, high, size=tuple(shape))
                if i in which:
                    operands.append(real + 1j * draws.uniform(low, high, size=tuple(shape)))
                else:
                    operands.append(weft.asarray(np.trunc(real)).to(dtype))
            if not which or op.name in NOT_LINEAR:
                continue

            def call(part):
                given = [part(x) if i in which else x for i, x in enumerate(operands)]
                results = op(
                    *(weft.asarray(x) if i in which else x for i, x in enumerate(given)),
                    structure=structure, values=list(values),
                )
                return results if isinstance(results, (list, tuple)) else [results]

            try:
                found = call(lambda x: x)
            except ValueError as raised:
                assert f"{op.name}: operand" in str(raised), (op.name, str(raised))
                assert "is c128, expected" in str(raised), (op.name, str(raised))
                refused.add(op.name)
                continue
            taken.add(op.name)
            parts = [call(lambda x: x.real.copy()), call(lambda x: x.imag.copy())]
            for one, re, im in zip(found, *parts):
                if one.dtype.is_complex:
                    check(one.numpy(), re.numpy() + 1j * im.numpy(), op.name)
                else:
                    check(one.numpy(), re.numpy(), op.name)
    assert not taken & refused
    assert {"add", "sum", "mean", "slice", "cat", "take", "expand"} <= taken
    assert {"less", "max", "sort", "softmax", "layer_norm"} <= refused


def test_covariance_and_what_has_no_complex_meaning():
    z = draws.normal(size=(3, 9)) + 1j * draws.normal(size=(3, 9))
    assert np.abs(weft.cov(weft.from_numpy(z)).numpy() - np.cov(z)).max() < 1e-12
    x = weft.from_numpy(z)
    assert weft.linalg.matrix_norm(x, ord=1).dtype == weft.float64
    for call, message in (
        (lambda: weft.newton_schulz(x), "newton_schulz: dtype is c128, expected a real one"),
        (lambda: weft.functional.mse_loss(x, x), "mse_loss: dtypes are c128 and c128"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_values_that_are_written_have_the_dtype_of_the_tensor():
    index = weft.asarray([0])
    double, single = weft.zeros((3,), dtype=weft.float64), weft.asarray([7.5], dtype=weft.float32)
    for made, src in ((weft.zeros((3,)), weft.asarray([2 + 3j])), (double, single)):
        for name in ("index_copy", "scatter", "scatter_reduce", "index_reduce"):
            more = ("prod",) if "reduce" in name else ()
            with pytest.raises(ValueError, match="dtype of src is .*, that of the tensor; cast it"):
                getattr(T, name)(made, 0, index, src, *more)
    written = T.slice_scatter(double, single, 0, 1, 2)
    assert written.tolist() == [0, 7.5, 0]
