# SPDX-License-Identifier: Apache-2.0
"""Functions and layers of images, in torch.nn's names. Images are [batch, channels, d...] with 1 to
3 dims d, or without the batch; all dims may be sharded."""

from weft import _weft
from weft._arguments import renamed as _renamed
from weft._weft import Module

_OF_IMAGE = (
    " Images are [batch, channels, d...], or without the batch, and may be sharded along every dim."
)


def _for_dims(make, name, text):
    """The functions or classes that `make(dims)` gives, for 1 to 3 dims, by their names."""
    made = []
    for dims in (1, 2, 3):
        each = make(dims)
        each.__doc__ = text.format(dims=dims)
        each.__module__ = __name__
        made.append(_renamed(each, name.format(dims)))
    return made


def _is_same(what, padding):
    """True for the padding "same"; ValueError for another word than that and "valid"."""
    if isinstance(padding, str) and padding not in ("same", "valid"):
        raise ValueError(f"{what}: padding is {padding!r}, expected numbers, 'same' or 'valid'")
    return padding == "same"


def _numbers(padding):
    return 0 if isinstance(padding, str) else padding


def _check_dims(what, dims, x, weight):
    if weight.ndim != dims + 2:
        raise ValueError(f"{what}: weight is {weight.shape}, expected {dims + 2} dims")


def _convolution_of(dims):
    name = f"conv{dims}d"

    def conv(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        _check_dims(name, dims, input, weight)
        same = _is_same(name, padding)
        given = stride, _numbers(padding), dilation, groups, same
        return _weft._convolution(input, weight, bias, *given)

    return conv


def _transposed_of(dims):
    name = f"conv_transpose{dims}d"

    def conv_transpose(
        input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
    ):
        _check_dims(name, dims, input, weight)
        given = stride, padding, output_padding, groups, dilation
        return _weft._transposed_convolution(input, weight, bias, *given)

    return conv_transpose


def _max_pool_of(dims):
    def max_pool(
        input,
        kernel_size,
        stride=None,
        padding=0,
        dilation=1,
        ceil_mode=False,
        return_indices=False,
    ):
        stride = [] if stride is None else stride
        given = kernel_size, stride, padding, dilation, ceil_mode
        pooled = _weft._max_pool(input, dims, *given)
        return pooled if return_indices else pooled[0]

    return max_pool


def _avg_pool_of(dims):
    def avg_pool(
        input,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    ):
        stride = [] if stride is None else stride
        given = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        return _weft._avg_pool(input, dims, *given)

    return avg_pool


def _adaptive_sizes(size):
    """Sizes in which None, the size of the image, is -1."""
    sizes = size if isinstance(size, (tuple, list)) else [size]
    return [-1 if each is None else each for each in sizes]


def _adaptive_max_pool_of(dims):
    def adaptive_max_pool(input, output_size, return_indices=False):
        pooled = _weft._adaptive_max_pool(input, dims, _adaptive_sizes(output_size))
        return pooled if return_indices else pooled[0]

    return adaptive_max_pool


def _adaptive_avg_pool_of(dims):
    def adaptive_avg_pool(input, output_size):
        return _weft._adaptive_avg_pool(input, dims, _adaptive_sizes(output_size))

    return adaptive_avg_pool


conv1d, conv2d, conv3d = _for_dims(
    _convolution_of,
    "conv{}d",
    "input by weight [out, in / groups, taps...] (+ bias [out]). padding: zeros at both ends, "
    '"valid" for none, "same" to keep the size.' + _OF_IMAGE,
)
conv_transpose1d, conv_transpose2d, conv_transpose3d = _for_dims(
    _transposed_of,
    "conv_transpose{}d",
    "The gradient of conv{dims}d with respect to its input, for a weight [in, out / groups, "
    "taps...]. output_padding is added to the result's size." + _OF_IMAGE,
)
max_pool1d, max_pool2d, max_pool3d = _for_dims(
    _max_pool_of,
    "max_pool{}d",
    "The greatest elements of windows, with return_indices also their places in each channel."
    + _OF_IMAGE,
)
avg_pool1d, avg_pool2d, avg_pool3d = _for_dims(
    _avg_pool_of, "avg_pool{}d", "The means of windows." + _OF_IMAGE
)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = _for_dims(
    _adaptive_max_pool_of,
    "adaptive_max_pool{}d",
    "The greatest elements of output_size windows that cover the image." + _OF_IMAGE,
)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = _for_dims(
    _adaptive_avg_pool_of,
    "adaptive_avg_pool{}d",
    "The means of output_size windows that cover the image; None keeps the size of a dim."
    + _OF_IMAGE,
)


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Blocks of an image [batch, channels, d0, d1] as columns: [batch, channels * taps, blocks]."""
    return _weft._image_to_columns(input, kernel_size, stride, padding, dilation)


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """The sums of columns [batch, channels * taps, blocks] in an image of `output_size`."""
    return _weft._columns_to_image(input, output_size, kernel_size, stride, padding, dilation)


def batch_norm(
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
):
    """Each channel minus its mean, divided by its deviation: of the whole batch while training,
    however it is sharded, else the running ones, which training changes in place."""
    given = running_mean, running_var, weight, bias, training, momentum, eps, False
    return _weft._batch_norm(input, *given)


def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """batch_norm of each item of the batch by itself."""
    given = running_mean, running_var, weight, bias, use_input_stats, momentum, eps, True
    return _weft._batch_norm(input, *given)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Each group of channels of an item minus its mean, divided by its deviation."""
    return _weft._group_norm(input, num_groups, weight, bias, eps)


FUNCTIONS = {
    name: function
    for name, function in globals().items()
    if callable(function) and name[0] != "_" and name != "Module"
}


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

    class ConvTransposeNd(_weft._ConvTranspose):
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
    _pool_layer_of((max_pool1d, max_pool2d, max_pool3d)),
    "MaxPool{}d",
    "max_pool{dims}d with the arguments after its input.",
)
AvgPool1d, AvgPool2d, AvgPool3d = _for_dims(
    _pool_layer_of((avg_pool1d, avg_pool2d, avg_pool3d)),
    "AvgPool{}d",
    "avg_pool{dims}d with the arguments after its input.",
)
AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = _for_dims(
    _pool_layer_of((adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d)),
    "AdaptiveMaxPool{}d",
    "adaptive_max_pool{dims}d to that size.",
)
AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = _for_dims(
    _pool_layer_of((adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)),
    "AdaptiveAvgPool{}d",
    "adaptive_avg_pool{dims}d to that size; None keeps the size of a dim.",
)


class Unfold(_pool_layer_of((None, unfold, None))(2)):
    """unfold with the arguments after its input."""


class Fold(_pool_layer_of((None, fold, None))(2)):
    """fold with the arguments after its input."""


LAYERS = {
    name: value
    for name, value in globals().items()
    if isinstance(value, type) and name[0] != "_" and name != "Module"
}
