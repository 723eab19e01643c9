# SPDX-License-Identifier: Apache-2.0
"""Convolutions, pooling and norms of images compared with plain loops of NumPy, whole and sharded
along the batch, channels and space, with gradients; their layers; wrong uses."""

import copy
import itertools

import numpy as np
import pytest
import weft
from weft import nn
from weft.nn import functional as F

draws = np.random.default_rng(11)
R, S = weft.Replicate(), weft.Shard
LINE = (3, {"a": 3})
SQUARE = (4, {"a": 2, "b": 2})


def each(number, dims):
    return (number,) * dims if np.isscalar(number) else tuple(number)


class Reference:
    """A convolution in NumPy: a loop over taps."""

    def __init__(self, x, w, stride=1, padding=0, dilation=1, groups=1):
        dims = x.ndim - 2
        self.x, self.w, self.groups = x, w, groups
        self.stride, self.dilation = each(stride, dims), each(dilation, dims)
        self.padding = each(padding, dims)
        self.padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in self.padding)])
        self.sizes = [
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(self.padded.shape[2:], w.shape[2:], self.stride, self.dilation)
        ]

    def taps(self):
        """(tap, what it reads, group) with the slices of channels of both sides."""
        out, per = self.w.shape[0] // self.groups, self.w.shape[1]
        for tap in np.ndindex(*self.w.shape[2:]):
            read = tuple(
                slice(j * d, j * d + (n - 1) * s + 1, s)
                for j, d, n, s in zip(tap, self.dilation, self.sizes, self.stride)
            )
            for g in range(self.groups):
                rows, columns = slice(g * out, g * out + out), slice(g * per, g * per + per)
                yield tap, (slice(None), columns, *read), (slice(None), rows), rows

    def result(self):
        y = np.zeros((len(self.x), len(self.w), *self.sizes))
        for tap, read, written, rows in self.taps():
            w = self.w[(rows, slice(None), *tap)]
            y[written] += np.einsum("bc...,oc->bo...", self.padded[read], w)
        return y

    def gradients(self, g):
        x, w = np.zeros(self.padded.shape), np.zeros(self.w.shape)
        for tap, read, written, rows in self.taps():
            at = (rows, slice(None), *tap)
            x[read] += np.einsum("bo...,oc->bc...", g[written], self.w[at])
            w[at] += np.einsum("bon,bcn->oc", *(
                part.reshape(*part.shape[:2], -1) for part in (g[written], self.padded[read])
            ))
        inside = tuple(slice(p, p + n) for p, n in zip(self.padding, self.x.shape[2:]))
        return x[(slice(None), slice(None), *inside)], w


def run(where, function, operands, layouts, gradient=None):
    """Results and gradients of function(*operands), whole, for each of the layouts: those of the
    operands and of the gradient. Equal on all ranks."""
    ranks, axes = where

    def laid(array, mesh, layout):
        return weft.distribute(weft.from_numpy(array.copy()), mesh, layout)

    def body(world):
        mesh = weft.DeviceMesh(world, axes)
        made = []
        for layout in layouts:
            given = [laid(x, mesh, at) for x, at in zip(operands, layout)]
            for x in given:
                x.requires_grad_()
            y = function(*given)
            if gradient is not None:
                y.backward(laid(gradient, mesh, layout[-1]))
            kept = [y, *(x.grad for x in given)] if gradient is not None else [y]
            made.append([t.full_tensor().detach().numpy() for t in kept])
        return made

    results = weft.run_ranks(ranks, body)
    for other in results[1:]:
        for a, b in zip(results[0], other):
            for x, y in zip(a, b):
                np.testing.assert_array_equal(x, y)
    return results[0]


def close(made, expected, bound=1e-10):
    for a, b in zip(made, expected):
        assert a.shape == b.shape
        assert np.abs(a - b).max(initial=0) <= bound * max(1, np.abs(b).max(initial=0))


def layouts_of(operands, dims, axes):
    """Every cut of an image, next to some of the filter and of the gradient."""
    cuts = [R] + [S(d) for d in range(dims + 2)]
    images = list(itertools.product(cuts, repeat=axes))
    filters = [[R] * axes, [S(0)] + [R] * (axes - 1), [R] * (axes - 1) + [S(1)]]
    for i, image in enumerate(images):
        other = images[(7 * i + 3) % len(images)]
        yield [image, filters[i % 3], *[[R] * axes] * (operands - 2), other]


SHAPES = {
    1: ((3, 4, 11), (6, 2, 3)),
    2: ((2, 4, 7, 5), (6, 2, 3, 2)),
    3: ((2, 2, 4, 5, 3), (2, 1, 2, 3, 1)),
}


@pytest.mark.parametrize("where", [LINE, SQUARE], ids=["line", "square"])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_convolutions_equal_numpys(dims, stride, dilation, where):
    shape, filter_shape = SHAPES[dims]
    x, w = draws.standard_normal(shape), draws.standard_normal(filter_shape)
    how = {"stride": stride, "padding": (3, 2, 1)[:dims], "dilation": dilation, "groups": 2}
    expected = Reference(x, w, **how)
    y = expected.result()
    g = draws.standard_normal(y.shape)
    function = getattr(F, f"conv{dims}d")
    layouts = list(layouts_of(2, dims, len(where[1])))
    made = run(where, lambda x, w: function(x, w, None, **how), [x, w], layouts, g)
    for each_made in made:
        close(each_made, [y, *expected.gradients(g)])


@pytest.mark.parametrize("dtype, bound", [("float32", 1e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_convolutions_of_groups_and_dtypes(groups, dtype, bound):
    x = draws.standard_normal((2, 6, 9, 8)).astype(dtype)
    w = draws.standard_normal((12, 6 // groups, 3, 3)).astype(dtype)
    b = draws.standard_normal(12).astype(dtype)
    expected = Reference(x, w, 2, 1, 1, groups)
    y = expected.result()
    g = draws.standard_normal(y.shape).astype(dtype)
    made = run(SQUARE, lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, groups), [x, w, b],
               list(layouts_of(3, 2, 2)), g)
    for each_made in made:
        close(each_made, [y + b.reshape(12, 1, 1), *expected.gradients(g), g.sum((0, 2, 3))], bound)


def test_convolutions_in_bfloat16():
    x, w = (draws.integers(-3, 4, s).astype("float32") for s in ((1, 16, 9, 9), (16, 16, 3, 3)))
    half = F.conv2d(*(weft.from_numpy(a).to(weft.bfloat16) for a in (x, w)), padding=1)
    assert half.dtype == weft.bfloat16
    expected = Reference(x, w, 1, 1).result()
    assert np.abs(half.to(weft.float32).numpy() - expected).max() <= np.abs(expected).max() / 200


def test_padding_same():
    x, w = draws.standard_normal((1, 2, 6, 5)), draws.standard_normal((3, 2, 4, 3))
    y = F.conv2d(weft.from_numpy(x), weft.from_numpy(w), padding="same", dilation=(1, 2)).numpy()
    whole = np.pad(x, [(0, 0), (0, 0), (1, 2), (2, 2)])
    close([y], [Reference(whole, w, 1, 0, (1, 2)).result()])
    unbatched = F.conv2d(weft.from_numpy(x[0]), weft.from_numpy(w), padding="valid")
    close([unbatched.numpy()], [Reference(x, w).result()[0]])


@pytest.mark.parametrize("stride, dilation, groups", [(1, 1, 1), (2, 1, 2), (3, 2, 1), (4, 1, 2)])
def test_transposed_convolutions(stride, dilation, groups):
    x, w = draws.standard_normal((2, 4, 5, 4)), draws.standard_normal((4, 3, 3, 2))
    added = (min(1, stride - 1), 0)
    sizes = [
        (n - 1) * stride - 2 + dilation * (k - 1) + 1 + a
        for n, k, a in zip((5, 4), (3, 2), added)
    ]
    image = draws.standard_normal((2, 3 * groups, *sizes))
    of_image = Reference(image, w, stride, 1, dilation, groups)
    y, w_gradient = of_image.gradients(x)
    made = run(
        SQUARE,
        lambda x, w: F.conv_transpose2d(x, w, None, stride, 1, added, groups, dilation),
        [x, w], list(layouts_of(2, 2, 2)), image,
    )
    for each_made in made:
        close(each_made, [y, of_image.result(), w_gradient])


def windows(size, kernel, stride, padding, dilation, ceil):
    """The elements of each window along a dim, with those of the padding."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (room + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (count - 1) * stride >= size + padding:
        count -= 1
    return [[t * stride - padding + j * dilation for j in range(kernel)] for t in range(count)]


def adaptive(size, count):
    return [list(range(t * size // count, -(-(t + 1) * size // count))) for t in range(count)]


def pooled(x, of_dims, mode, g, counts_padding=False):
    """Maxima or means of the windows of each dim, and the gradient of x."""
    y, gx = np.zeros((*x.shape[:2], *map(len, of_dims))), np.zeros(x.shape)
    for t in np.ndindex(*y.shape[2:]):
        inside = [
            [s for s in of[i] if 0 <= s < n] for of, i, n in zip(of_dims, t, x.shape[2:])
        ]
        all_places = list(itertools.product(*inside))
        divisor = len(all_places)
        if counts_padding:  # up to the end of the padding
            ends = [n + counts_padding for n in x.shape[2:]]
            divisor = np.prod([sum(s < e for s in of[i]) for of, i, e in zip(of_dims, t, ends)])
        for plane in np.ndindex(*x.shape[:2]):
            values = [x[(*plane, *s)] for s in all_places]
            if mode == "max":
                best = int(np.argmax(values))
                y[(*plane, *t)] = values[best]
                gx[(*plane, *all_places[best])] += g[(*plane, *t)]
            else:
                y[(*plane, *t)] = sum(values) / divisor
                for s in all_places:
                    gx[(*plane, *s)] += g[(*plane, *t)] / divisor
    return y, gx


@pytest.mark.parametrize("where", [LINE, SQUARE], ids=["line", "square"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("ceil", [False, True])
def test_pools_equal_numpys(stride, ceil, where):
    x = draws.standard_normal((2, 3, 7, 5))
    of_max = [windows(n, k, stride, 1, 2, ceil) for n, k in ((7, 3), (5, 2))]
    of_mean = [windows(n, k, stride, 1, 1, ceil) for n, k in ((7, 3), (5, 2))]
    g = draws.standard_normal((2, 3, *map(len, of_max)))
    layouts = [[a, b] for a, _, b in layouts_of(2, 2, len(where[1]))]
    of = {"padding": 1, "stride": stride, "ceil_mode": ceil}
    for made in run(where, lambda x: F.max_pool2d(x, (3, 2), dilation=2, **of), [x], layouts, g):
        close(made, pooled(x, of_max, "max", g))
    g = draws.standard_normal((2, 3, *map(len, of_mean)))
    for made in run(where, lambda x: F.avg_pool2d(x, (3, 2), **of), [x], layouts, g):
        close(made, pooled(x, of_mean, "mean", g, counts_padding=1))
    for made in run(where, lambda x: F.avg_pool2d(x, (3, 2), count_include_pad=False, **of), [x],
                    layouts, g):
        close(made, pooled(x, of_mean, "mean", g))


@pytest.mark.parametrize("sizes, kernel, stride, padding", [
    ((1, 2), (2, 3), (2, 3), (0, 0)), ((3, 1), (4, 2), (3, 2), (0, 1)),
    ((1, 5), (4, 4), (4, 3), (1, 0)),
])  # fmt: skip
def test_a_window_larger_than_the_image_needs_ceil_mode(sizes, kernel, stride, padding):
    x = draws.standard_normal((2, 3, *sizes))
    of = [windows(*one, 1, True) for one in zip(sizes, kernel, stride, padding)]
    g = draws.standard_normal((2, 3, *map(len, of)))
    layouts = [[a, b] for a, _, b in layouts_of(2, 2, 2)]
    how = {"stride": stride, "padding": padding}
    for made in run(SQUARE, lambda x: F.max_pool2d(x, kernel, ceil_mode=True, **how), [x], layouts,
                    g):
        close(made, pooled(x, of, "max", g))
    whole = weft.from_numpy(x)
    given = {"ceil_mode": True, "count_include_pad": False}
    close([F.avg_pool2d(whole, kernel, **how, **given).numpy()], pooled(x, of, "mean", g)[:1])
    with pytest.raises(ValueError, match="avg_pool: dim . of the image with its padding is"):
        F.avg_pool2d(whole, kernel, **how)


@pytest.mark.parametrize("size", [(3, 2), (7, 5), (9, 1), (4, None)])
def test_adaptive_pools_equal_numpys(size):
    x = draws.standard_normal((2, 3, 7, 5))
    of = [adaptive(n, k or n) for n, k in zip((7, 5), size)]
    g = draws.standard_normal((2, 3, *map(len, of)))
    layouts = [[a, b] for a, _, b in layouts_of(2, 2, 2)]
    for made in run(SQUARE, lambda x: F.adaptive_avg_pool2d(x, size), [x], layouts, g):
        close(made, pooled(x, of, "mean", g))
    for made in run(SQUARE, lambda x: F.adaptive_max_pool2d(x, size), [x], layouts, g):
        close(made, pooled(x, of, "max", g))


def test_indices_of_maxima():
    x = draws.standard_normal((2, 3, 6))
    y, places = F.max_pool1d(weft.from_numpy(x), 2, return_indices=True)
    np.testing.assert_array_equal(np.take_along_axis(x, places.numpy(), -1), y.numpy())
    of_nan = F.max_pool1d(weft.tensor([[[1.0, float("nan"), 0.0, 2.0]]]), 2)
    assert np.isnan(of_nan.tolist()[0][0][0])


def normalised(x, axes):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + 1e-5)


def test_norms_equal_numpys():
    x, w, b = (draws.standard_normal(shape) for shape in ((3, 4, 5, 3), 4, 4))
    g = draws.standard_normal(x.shape)
    w4, b4 = w.reshape(4, 1, 1), b.reshape(4, 1, 1)
    cuts = [list(cut) for cut in itertools.product([R, S(0), S(1), S(2), S(3)], repeat=2)]
    layouts = [[cut, [R, R], [R, S(0)], cuts[(3 * i + 1) % 25]] for i, cut in enumerate(cuts)]
    grouped = normalised(x.reshape(3, 2, 2, 5, 3), (2, 3, 4)).reshape(x.shape)
    functions = {
        "batch": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (0, 2, 3)),
        "instance": (lambda x, w, b: F.instance_norm(x, None, None, w, b), (2, 3)),
        "group": (lambda x, w, b: F.group_norm(x, 2, w, b), None),
    }
    for function, axes in functions.values():
        normal = grouped if axes is None else normalised(x, axes)
        step = 1e-6
        to_x = draws.standard_normal(x.shape)  # the derivative along one direction
        def of(at):
            n = normalised(at.reshape(3, 2, 2, 5, 3), (2, 3, 4)).reshape(x.shape) if axes is None \
                else normalised(at, axes)
            return (g * (n * w4 + b4)).sum()
        slope = (of(x + step * to_x) - of(x - step * to_x)) / (2 * step)
        for y, x_gradient, w_gradient, b_gradient in run(SQUARE, function, [x, w, b], layouts, g):
            close([y], [normal * w4 + b4])
            close([w_gradient, b_gradient], [(g * normal).sum((0, 2, 3)), g.sum((0, 2, 3))])
            assert abs((x_gradient * to_x).sum() - slope) <= 1e-6 * max(1, abs(slope))


def test_running_statistics():
    batches = [draws.standard_normal((4, 3, 5)).astype("float32") for _ in range(3)]

    def body(world):
        mesh = weft.DeviceMesh(world, {"a": 3})
        layer = nn.BatchNorm1d(3, device="cpu")
        weft.fully_shard(layer, mesh, strategy="ddp")
        for cut, batch in enumerate(batches):
            layer(weft.distribute(weft.from_numpy(batch), mesh, [S(cut)]))
        state = {name: x.full_tensor().numpy() for name, x in layer.named_buffers()}
        layer.eval()
        y = layer(weft.distribute(weft.from_numpy(batches[0]), mesh, [S(0)]))
        return state, y.full_tensor().detach().numpy()

    mean, var = np.zeros(3), np.ones(3)
    for batch in batches:
        mean = 0.9 * mean + 0.1 * batch.mean((0, 2))
        var = 0.9 * var + 0.1 * batch.transpose(1, 0, 2).reshape(3, -1).var(1, ddof=1)
    for state, y in weft.run_ranks(3, body):
        close([state["running_mean"], state["running_var"]], [mean, var], 1e-6)
        assert state["num_batches_tracked"] == 3
        expected = (batches[0] - mean[:, None]) / np.sqrt(var[:, None] + 1e-5)
        close([y], [expected], 1e-5)


def test_instance_norm_tracks_as_pytorch():
    x = draws.standard_normal((4, 3, 5)).astype("float32")
    for momentum, mean in ((None, 0), (0.25, 0.25 * x.mean((0, 2)))):
        layer = nn.InstanceNorm1d(3, momentum=momentum, track_running_stats=True, device="cpu")
        layer(weft.from_numpy(x))
        close([layer.running_mean.numpy()], [np.broadcast_to(mean, 3)], 1e-6)
        assert layer.num_batches_tracked.item() == 0


def test_layers_are_copied():
    layers = [
        nn.Conv2d(2, 4, 3, padding="same", groups=2, bias=False), nn.BatchNorm2d(4, momentum=None),
        nn.MaxPool2d(2, ceil_mode=True), nn.ConvTranspose2d(4, 2, 2, stride=2),
        nn.GroupNorm(1, 2, affine=False), nn.InstanceNorm2d(2, affine=True),
        nn.AdaptiveAvgPool2d(3), nn.Unfold(2), nn.Fold((3, 3), 2),
    ]  # fmt: skip
    model = nn.Sequential(*layers)
    model.materialize("cpu")
    x = weft.from_numpy(draws.standard_normal((2, 2, 7, 5)).astype("float32"))
    model(x)
    made = copy.deepcopy(model)
    assert [type(layer) for layer in made] == [type(layer) for layer in layers]
    assert made[0].padding == "same" and made[1].num_batches_tracked.item() == 1
    close([made(x).detach().numpy()], [model(x).detach().numpy()], 0)
    made[0].weight.detach().fill_(0)
    assert np.abs(model[0].weight.detach().numpy()).max() > 0


def test_columns():
    x = draws.standard_normal((2, 3, 6, 5))
    how = {"kernel_size": (2, 3), "dilation": (2, 1), "padding": 1, "stride": (1, 2)}
    whole = Reference(x, np.zeros((1, 3, 2, 3)), (1, 2), 1, (2, 1))
    expected = np.stack([whole.padded[read] for _, read, _, _ in whole.taps()], 2)
    expected = expected.reshape(2, 18, -1)
    layouts = [[a, [R, R]] for a, _, _ in layouts_of(2, 2, 2)]
    g = draws.standard_normal(expected.shape)
    back = np.zeros(whole.padded.shape)
    columns = g.reshape(2, 3, 6, *whole.sizes)
    for i, (_, read, _, _) in enumerate(whole.taps()):
        back[read] += columns[:, :, i]
    back = back[:, :, 1:-1, 1:-1]
    for y, x_gradient in run(SQUARE, lambda x: F.unfold(x, **how), [x], layouts, g):
        close([y, x_gradient], [expected, back])
    close([F.fold(weft.from_numpy(g), (6, 5), **how).numpy()], [back])


@pytest.mark.parametrize("shape, taps", [((17,), (5,)), ((7, 6), (3, 5)), ((7, 5, 6), (3, 1, 3))])
def test_stencils(shape, taps):
    x, w = draws.standard_normal(shape), draws.standard_normal(taps)
    w.flat[1] = 0
    whole = Reference(x[None, None], w[None, None], 1, [n // 2 for n in taps])
    y, g = whole.result()[0, 0], draws.standard_normal(shape)
    cuts = list(itertools.product([R, *(S(d) for d in range(len(shape)))], repeat=2))
    layouts = [[cut, [R, R], cuts[(3 * i + 2) % len(cuts)]] for i, cut in enumerate(cuts)]
    expected = [y, *(part[0, 0] for part in whole.gradients(g[None, None]))]
    for made in run(SQUARE, weft.stencil, [x, w], layouts, g):
        close(made, expected)


X, W = weft.ones(1, 4, 5, 5), weft.ones(6, 2, 3, 3)
MISTAKES = {
    "conv2d: padding is 'some', expected numbers, 'same' or 'valid'": lambda: F.conv2d(
        X, W, padding="some"),
    "conv1d: weight is (6, 2, 3, 3), expected 3 dims": lambda: F.conv1d(X, W),
    "convolution: weight is [4, 4], expected 3 to 5 dims": lambda: weft._weft._convolution(
        X, weft.ones(4, 4), None, 1, 0, 1, 1, False),
    "convolution: x has 4 channels, expected 2, by the weight and groups 1": lambda: F.conv2d(X, W),
    "convolution: x is [4, 5], expected 4 dims, or 3 without a batch": lambda: F.conv2d(
        weft.ones(4, 5), W),
    "convolution: groups must be at least 1, got 0": lambda: F.conv2d(X, W, groups=0),
    "convolution: dim 0 of weight is 6, expected a multiple of groups, 4": lambda: F.conv2d(
        X, W, groups=4),
    "convolution: weight is [6, 2, 3, 0], expected taps": lambda: F.conv2d(
        X, weft.ones(6, 2, 3, 0), groups=2),
    "convolution: stride must be at least 1, got 0": lambda: F.conv2d(X, W, stride=0, groups=2),
    "convolution: padding must be at least 0, got -1": lambda: F.conv2d(X, W, padding=-1, groups=2),
    "convolution: dilation has 3 numbers, expected 1 or 2, one for each dim of the image":
        lambda: F.conv2d(X, W, dilation=(1, 1, 1), groups=2),
    "convolution: weight is f64, expected f32, as x": lambda: F.conv2d(
        X, W.to(weft.float64), groups=2),
    "convolution: bias is [4], expected [6]": lambda: F.conv2d(X, W, weft.ones(4), groups=2),
    "convolution: dim 0 of the image with its padding is 5, expected at least 7, which the filter "
    "reads": lambda: F.conv2d(X, W, dilation=3, groups=2),
    "convolution: stride is 2, expected 1 for the padding 'same'": lambda: F.conv2d(
        X, W, stride=2, padding="same", groups=2),
    "stencil: weights are [3, 3] for x [5], expected as many dims, 1 to 3": lambda: weft.stencil(
        weft.ones(5), weft.ones(3, 3)),
    "stencil: weights are f64, expected f32, as x": lambda: weft.stencil(
        weft.ones(5), weft.ones(3, dtype=weft.float64)),
    "stencil: dim 0 of weights is 2, expected an odd number": lambda: weft.stencil(
        weft.ones(5), weft.ones(2)),
    "transposed_convolution: output_padding is 2, expected less than 2, the stride or the dilation":
        lambda: F.conv_transpose2d(weft.ones(1, 6, 5, 5), W, stride=2, output_padding=2),
    "transposed_convolution: dim 0 of the result must be at least 1, got -1":
        lambda: F.conv_transpose2d(weft.ones(1, 6, 1, 1), W, padding=2),
    "max_pool: padding is 2, expected at most 1, half of the window": lambda: F.max_pool2d(
        X, 3, padding=2),
    "max_pool: dim 0 of the image with its padding is 5, expected at least 6, the window":
        lambda: F.max_pool2d(X, 6),
    "avg_pool: divisor is 0, expected another number": lambda: F.avg_pool2d(
        X, 2, divisor_override=0),
    "adaptive_avg_pool: size must be at least 1, got 0": lambda: F.adaptive_avg_pool2d(X, 0),
    "adaptive_max_pool: dim 1 of the image must be at least 1, got 0":
        lambda: F.adaptive_max_pool2d(weft.ones(1, 2, 3, 0), 2),
    "avg_pool: number of dims is 4, expected 1 to 3": lambda: weft._weft._avg_pool(
        X, 4, 1, 1, 0, False, True, None),
    "batch_norm: x is [3], expected at least 2 dims": lambda: F.batch_norm(
        weft.ones(3), None, None, None, None, True),
    "batch_norm: x is i64, expected a floating dtype": lambda: F.batch_norm(
        X.to(weft.int64), None, None, None, None, True),
    "batch_norm: weight is [3], expected [4]": lambda: F.batch_norm(
        X, None, None, weft.ones(3), None, True),
    "batch_norm: one of running_mean and running_var is given, expected both or none":
        lambda: F.batch_norm(X, weft.ones(4), None, None, None, True),
    "batch_norm: running_mean is missing, expected one outside of training": lambda: F.batch_norm(
        X, None, None),
    "batch_norm: number of values of a channel is 1, expected at least 2 while training":
        lambda: F.batch_norm(weft.ones(1, 4), None, None, None, None, True),
    "instance_norm: number of values of a channel is 1, expected at least 2 while training":
        lambda: F.instance_norm(weft.ones(2, 4, 1)),
    "group_norm: groups is 3, expected a divisor of 4, the number of channels": lambda:
        F.group_norm(X, 3),
    "columns_to_image: columns are [1, 5, 4], expected a multiple of 4 rows and 16 blocks":
        lambda: F.fold(weft.ones(1, 5, 4), (5, 5), 2),
    "image_to_columns: dim 0 of the image with its padding is 5, expected at least 6, the reach of "
    "the kernel": lambda: F.unfold(X, 6),
    "Conv2d: padding_mode is 'reflect', expected 'zeros'; pad the input first": lambda: nn.Conv2d(
        1, 1, 1, padding_mode="reflect"),
    "conv: channels are 4 and 6, expected multiples of 4, the groups": lambda: nn.Conv2d(
        4, 6, 1, groups=4),
    "conv: kernel has 3 numbers, expected 1 or 2": lambda: nn.Conv2d(4, 6, (1, 1, 1)),
    "conv: kernel must be at least 1, got 0": lambda: nn.Conv2d(4, 6, 0),
    "conv: stride must be at least 1, got 0": lambda: nn.Conv2d(4, 6, 1, stride=(1, 0)),
    "conv: padding must be at least 0, got -1": lambda: nn.Conv2d(4, 6, 1, padding=-1),
    "conv: dilation has 3 numbers, expected 1 or 2": lambda: nn.Conv2d(4, 6, 1, dilation=(1, 1, 1)),
    "conv: stride is 2, expected 1 with padding 'same'": lambda: nn.Conv2d(
        4, 6, 1, stride=2, padding="same"),
    "conv_transpose: output_padding must be at least 0, got -1": lambda: nn.ConvTranspose1d(
        4, 6, 1, output_padding=-1),
    "convolution: bias is f64, expected f32, as x": lambda: F.conv2d(
        X, weft.ones(6, 4, 1, 1), weft.ones(6, dtype=weft.float64)),
    "transposed_convolution: bias is i64, expected f32, as x": lambda: F.conv_transpose2d(
        X, weft.ones(4, 6, 1, 1), weft.ones(6, dtype=weft.int64)),
    "max_pool: stride must be at least 1, got 0": lambda: nn.MaxPool2d(2, stride=0),
    "avg_pool: padding is 2, expected at most 1, half of the window": lambda: nn.AvgPool1d(
        2, padding=2),
    "adaptive_max_pool: size has 3 numbers, expected 1 or 2, one for each dim of the image":
        lambda: nn.AdaptiveMaxPool2d((1, 2, 3)),
    "image_to_columns: dilation must be at least 1, got 0": lambda: nn.Unfold(2, dilation=0),
    "image_to_columns: kernel must be at least 1, got 0": lambda: nn.Fold((4, 4), 0),
    "batch_norm: channels must be at least 1, got 0": lambda: nn.BatchNorm2d(0),
    "batch_norm: number of dims of x [1, 4, 5, 5] is 4, expected 3": lambda: nn.BatchNorm1d(
        4, device="cpu")(X),
    "batch_norm: x has 4 channels, expected 3": lambda: nn.BatchNorm2d(3, device="cpu")(X),
    "group_norm: x is [1, 4, 5, 5], expected 6 channels in dim 1": lambda: nn.GroupNorm(
        3, 6, device="cpu")(X),
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_wrong_uses_are_named(sentence):
    with pytest.raises(ValueError) as raised:
        MISTAKES[sentence]()
    assert str(raised.value) == sentence


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "image,filters,stride,padding",
    [
        ((2, 32, 1, 1), (32, 32, 3, 3), (2, 2), (1, 1)),
        ((2, 64, 5, 1), (64, 64, 3, 3), (2, 2), (1, 1)),
        ((2, 32, 3, 3), (32, 32, 3, 3), (3, 3), (1, 1)),
        ((1, 16, 2, 3, 3), (8, 16, 4, 1, 1), (2, 1, 1), (3, 0, 0)),
        ((1, 16, 1, 2, 2), (16, 16, 1, 2, 4), (3, 1, 3), (0, 0, 1)),
    ],
)
def test_gradients_of_taps_that_read_padding(image, filters, stride, padding, dtype):
    draws = np.random.default_rng(0)
    x, w = draws.normal(size=image), draws.normal(size=filters)
    convolve = F.conv2d if len(image) == 4 else F.conv3d

    def gradient(of):
        a, b = (weft.from_numpy(v).to(of) for v in (x, w))
        b = b.detach().requires_grad_()
        convolve(a, b, stride=stride, padding=padding).sum().backward()
        return b.grad.to(weft.float64).numpy()

    exact = gradient(weft.float64)
    for _ in range(3):
        weft.from_numpy(np.full((1 << 20,), np.nan, "f4")) * 2  # memory that is used again
        found = gradient(getattr(weft, dtype))
        bound = 0.05 if dtype == "bfloat16" else 1e-4
        assert np.abs(found - exact).max() < bound * max(1, np.abs(exact).max())


def test_options_of_a_layer_cannot_change():
    norm, conv = nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)
    for layer, name, value in ((norm, "momentum", 1.0), (norm, "eps", 10.0), (conv, "stride", 2)):
        with pytest.raises(AttributeError, match=f"{name} is .*, expected .*, that of the layer"):
            setattr(layer, name, value)


def test_indices_of_maxima_need_no_gradient():
    x = weft.from_numpy(np.arange(8.0).reshape(1, 1, 8)).requires_grad_()
    values, indices = F.max_pool1d(x, 2, return_indices=True)
    assert values.requires_grad and not indices.requires_grad
    assert indices.numpy().ravel().tolist() == [1, 3, 5, 7]
    assert not weft.torch.topk(x, 2)[1].requires_grad
