# SPDX-License-Identifier: Apache-2.0
"""torch.nn.functional's functions with its arguments: `from weft.nn import functional as F`."""

from weft import _weft
from weft._weft import linear, relu, sigmoid, silu, tanh
from weft._words import accept_words

__all__ = [
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "layer_norm",
    "linear",
    "log_softmax",
    "mse_loss",
    "relu",
    "rms_norm",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "tanh",
]


def _reduced(what, losses, reduction):
    if reduction == "none":
        return losses
    if reduction not in ("mean", "sum"):
        raise ValueError(f"{what}: reduction {reduction!r} is none of 'mean', 'sum', 'none'")
    return losses.mean() if reduction == "mean" else losses.sum()


def mse_loss(input, target, *, reduction="mean"):
    """(input - target)^2 element by element, of equal shapes: its mean, its sum or all of it."""
    if tuple(input.shape) != tuple(target.shape):
        raise ValueError(f"mse_loss: input is {input.shape} but target {target.shape}")
    return _reduced("mse_loss", _weft.square(input - target), reduction)


def cross_entropy(input, target, *, ignore_index=_weft.IGNORED_TARGET, reduction="mean"):
    """Of logits [..., classes], the last dim however many there are, against classes [...]; rows
    whose target is -100 do not count."""
    if ignore_index != _weft.IGNORED_TARGET:
        raise ValueError(
            f"cross_entropy: ignore_index {ignore_index} is not {_weft.IGNORED_TARGET}, "
            "the one target that does not count"
        )
    if reduction == "mean":
        return _weft.cross_entropy(input, target)
    return _reduced("cross_entropy", _weft.cross_entropy_rows(input, target), reduction)


def softmax(input, dim=-1):
    """exp(x) / sum of exp(x) along `dim`."""
    return _weft.softmax(input, dim)


def log_softmax(input, dim=-1):
    """The logarithm of softmax along `dim`."""
    return _weft.log_softmax(input, dim)


def gelu(input, *, approximate="none"):
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    if approximate != "none":
        raise ValueError(f"gelu: approximate {approximate!r} is not 'none', the exact function")
    return _weft.gelu(input)


def dropout(input, p=0.5, training=True):
    """Elements zeroed with probability p, the others divided by 1 - p; equal for any layout."""
    return _weft.dropout(input, p) if training else input


def embedding(input, weight):
    """Rows `input` [...] of weight [vocabulary, d]: [..., d]."""
    return _weft.embedding(weight, input)


def _check_last(what, x, normalized_shape):
    if tuple(normalized_shape) != tuple(x.shape[-1:]):
        raise ValueError(
            f"{what}: normalized_shape {tuple(normalized_shape)} is not the last dim of {x.shape}"
        )


def layer_norm(input, normalized_shape, weight, bias, eps=1e-5):
    """(x - mean) / sqrt(variance + eps) * weight + bias along the last dim."""
    _check_last("layer_norm", input, normalized_shape)
    return _weft.layer_norm(input, weight, bias, eps)


def rms_norm(input, normalized_shape, weight, eps=1e-5):
    """x / sqrt(mean of x^2 + eps) * weight along the last dim."""
    _check_last("rms_norm", input, normalized_shape)
    return _weft.rms_norm(input, weight, eps)


def scaled_dot_product_attention(query, key, value, *, is_causal=False, scale=None):
    """softmax(q k^T * scale) v of [batch, heads, sequence, d]; key and value may have fewer heads,
    of which each serves as many query heads. `weft.attention` takes [batch, sequence, heads, d]."""
    if is_causal and query.shape[2] != key.shape[2]:
        raise ValueError(
            f"scaled_dot_product_attention: is_causal needs as many queries as keys, "
            f"not {query.shape[2]} and {key.shape[2]}"
        )
    if scale == 0:  # which asks `attention` for the one it has unless told
        query, scale = query * 0, 1.0
    parts = [part.transpose(1, 2) for part in (query, key, value)]
    return _weft.attention(*parts, causal=is_causal, scale=scale or 0.0).transpose(1, 2)

accept_words(globals(), __all__)
