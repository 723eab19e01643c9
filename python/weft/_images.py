# SPDX-License-Identifier: Apache-2.0
"""Functions of images, in torch.nn's names. Images are [batch, channels, d...] with 1 to
3 dims d, or without the batch; all dims may be sharded."""

from weft import _weft
from weft._arguments import renamed as _renamed

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
    if callable(function) and name[0] != "_"
}
