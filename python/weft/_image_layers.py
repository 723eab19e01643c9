# SPDX-License-Identifier: Apache-2.0
"""Layers of images, in torch.nn's names, that call the functions of _images.py."""

from inspect import signature as _signature

from weft import _images, _weft
from weft._images import _for_dims, _is_same, _numbers, fold, unfold
from weft._weft import Module


def _functions(name):
    return [getattr(_images, name.format(dims)) for dims in (1, 2, 3)]


def _placed(layer, device, dtype):
    """Casts the parameters and gives them memory, where that is asked for."""
    if dtype is not None:
        layer._to_dtype(dtype)
    if device is not None:
        layer.materialize(device)


def _check_padding_mode(what, mode):
    if mode != "zeros":
        raise ValueError(f"{what}: padding_mode is {mode!r}, expected 'zeros'; pad the input first")


class _FixedOptions:
    def __init__(self, *given):
        super().__init__(*given)
        object.__setattr__(self, "_made_of", given)  # deepcopy makes another one of these

    def __setattr__(self, name, value):
        if name in self._fixed and (known := self.__dict__.get(name, value)) != value:
            raise AttributeError(
                f"{type(self).__name__}: {name} is {value!r}, expected {known!r}, that of the "
                f"layer when it was made; make another layer"
            )
        super().__setattr__(name, value)


def _conv_layer_of(dims):
    name = f"Conv{dims}d"

    class ConvNd(_FixedOptions, _weft._Conv):
        _fixed = "stride", "padding", "dilation", "groups"

        def __init__(
            self,
            in_channels,
            out_channels,
            kernel_size,
            stride=1,
            padding=0,
            dilation=1,
            groups=1,
            bias=True,
            padding_mode="zeros",
            device=None,
            dtype=None,
        ):
            _check_padding_mode(name, padding_mode)
            given = stride, _numbers(padding), dilation, groups, _is_same(name, padding), bias
            super().__init__(dims, in_channels, out_channels, kernel_size, *given)
            self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
            self.kernel_size, self.stride, self.dilation = kernel_size, stride, dilation
            self.padding = padding
            _placed(self, device, dtype)

    return ConvNd


def _transposed_layer_of(dims):
    name = f"ConvTranspose{dims}d"

    class ConvTransposeNd(_FixedOptions, _weft._ConvTranspose):
        _fixed = ()

        def __init__(
            self,
            in_channels,
            out_channels,
            kernel_size,
            stride=1,
            padding=0,
            output_padding=0,
            groups=1,
            bias=True,
            dilation=1,
            padding_mode="zeros",
            device=None,
            dtype=None,
        ):
            _check_padding_mode(name, padding_mode)
            given = stride, padding, dilation, groups, bias, output_padding
            super().__init__(dims, in_channels, out_channels, kernel_size, *given)
            _placed(self, device, dtype)

    return ConvTransposeNd


def _norm_layer_of(by_item):
    def layer_of(dims):
        class NormNd(_FixedOptions, _weft._BatchNorm):
            _fixed = "eps", "momentum"

            def __init__(
                self,
                num_features,
                eps=1e-5,
                momentum=0.1,
                affine=not by_item,
                track_running_stats=not by_item,
                device=None,
                dtype=None,
            ):
                given = eps, momentum, affine, track_running_stats, by_item
                super().__init__(dims, num_features, *given)
                self.num_features, self.eps, self.momentum = num_features, eps, momentum
                _placed(self, device, dtype)

        return NormNd

    return layer_of


class GroupNorm(_FixedOptions, _weft._GroupNorm):
    """group_norm of images. Parameters, if affine: weight and bias [channels]."""

    _fixed = "num_groups", "num_channels", "eps"

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None):
        super().__init__(num_groups, num_channels, eps, affine)
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        _placed(self, device, dtype)


def _pool_layer_of(functions):
    """Classes of modules that call a function of images with the options that they are made of."""

    def layer_of(dims):
        function = functions[dims - 1]

        class PoolNd(Module):
            def __init__(self, *arguments, **named):
                super().__init__()
                self._given = arguments, named
                # An image without memory, so that wrong options are errors here.
                self._check(dims)

            def _check(self, dims):
                self.forward(_weft.empty((1, 1) + (1 << 16,) * dims, device="meta"))

            def forward(self, x):
                arguments, named = self._given
                return function(x, *arguments, **named)

        return PoolNd

    return layer_of


Conv1d, Conv2d, Conv3d = _for_dims(
    _conv_layer_of,
    "Conv{}d",
    "conv{dims}d. Parameters: weight [out, in / groups, kernel...] and bias [out], uniform in +-1 "
    "/ sqrt(in / groups * elements of the kernel).",
)
ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = _for_dims(
    _transposed_layer_of,
    "ConvTranspose{}d",
    "conv_transpose{dims}d. Parameters: weight [in, out / groups, kernel...] and bias [out].",
)
BatchNorm1d, BatchNorm2d, BatchNorm3d = _for_dims(
    _norm_layer_of(False),
    "BatchNorm{}d",
    "batch_norm of images of {dims} dims, over the whole batch however it is sharded. Buffers: "
    "running_mean, running_var, num_batches_tracked.",
)
InstanceNorm1d, InstanceNorm2d, InstanceNorm3d = _for_dims(
    _norm_layer_of(True), "InstanceNorm{}d", "instance_norm of images of {dims} dims."
)
MaxPool1d, MaxPool2d, MaxPool3d = _for_dims(
    _pool_layer_of(_functions("max_pool{}d")),
    "MaxPool{}d",
    "max_pool{dims}d with the arguments after its input.",
)
AvgPool1d, AvgPool2d, AvgPool3d = _for_dims(
    _pool_layer_of(_functions("avg_pool{}d")),
    "AvgPool{}d",
    "avg_pool{dims}d with the arguments after its input.",
)
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = _for_dims(
    _pool_layer_of(_functions("adaptive_max_pool{}d")),
    "AdaptiveMaxPool{}d",
    "adaptive_max_pool{dims}d to that size.",
)
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = _for_dims(
    _pool_layer_of(_functions("adaptive_avg_pool{}d")),
    "AdaptiveAvgPool{}d",
    "adaptive_avg_pool{dims}d to that size; None keeps the size of a dim.",
)


class Unfold(_pool_layer_of((None, unfold, None))(2)):
    """unfold with the arguments after its input."""


class Fold(_pool_layer_of((None, fold, None))(2)):
    """fold with the arguments after its input."""

    def _check(self, dims):
        given = _signature(fold).bind(None, *self._given[0], **self._given[1]).arguments
        del given["input"]
        size = given.pop("output_size")
        sizes = (size, size) if isinstance(size, int) else size
        image = _weft.empty((1, 1, *sizes), device="meta")
        self.forward(unfold(image, **given))


LAYERS = {
    name: value
    for name, value in globals().items()
    if isinstance(value, type) and name[0] != "_" and name != "Module"
}
