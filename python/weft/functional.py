# SPDX-License-Identifier: Apache-2.0
"""torch.nn.functional's functions with its arguments: `from weft.nn import functional as F`."""

from weft import _weft
from weft._arguments import accept_words as _accept_words
from weft._images import FUNCTIONS as _FUNCTIONS
from weft._weft import gelu as gelu, linear as linear, log_softmax as log_softmax
from weft._weft import mse_loss as mse_loss, one_hot as one_hot, relu as relu, sigmoid as sigmoid
from weft._weft import silu as silu, softmax as softmax, tanh as tanh

binary_cross_entropy = _weft._torch_binary_cross_entropy
binary_cross_entropy_with_logits = _weft._torch_binary_cross_entropy_with_logits
cross_entropy = _weft._torch_cross_entropy
huber_loss = _weft._torch_huber_loss
kl_div = _weft._torch_kl_div
l1_loss = _weft._torch_l1_loss
layer_norm = _weft._torch_layer_norm
nll_loss = _weft._torch_nll_loss
smooth_l1_loss = _weft._torch_smooth_l1_loss
cosine_embedding_loss = _weft._torch_cosine_embedding_loss
gaussian_nll_loss = _weft._torch_gaussian_nll_loss
hinge_embedding_loss = _weft._torch_hinge_embedding_loss
margin_ranking_loss = _weft._torch_margin_ranking_loss
multi_margin_loss = _weft._torch_multi_margin_loss
multilabel_margin_loss = _weft._torch_multilabel_margin_loss
multilabel_soft_margin_loss = _weft._torch_multilabel_soft_margin_loss
poisson_nll_loss = _weft._torch_poisson_nll_loss
soft_margin_loss = _weft._torch_soft_margin_loss
triplet_margin_loss = _weft._torch_triplet_margin_loss
linear_cross_entropy = _weft._torch_linear_cross_entropy
rms_norm = _weft._torch_rms_norm
for _name in (
    "bilinear celu channel_shuffle cosine_similarity elu glu hardshrink hardsigmoid hardswish "
    "hardtanh leaky_relu local_response_norm logsigmoid mish normalize pad pairwise_distance pdist "
    "pixel_shuffle pixel_unshuffle prelu relu6 selu softmin softplus softshrink softsign "
    "tanhshrink threshold"
).split():
    globals()[_name] = getattr(_weft, f"_torch_{_name}")
scaled_dot_product_attention = _weft._torch_scaled_dot_product_attention


def dropout(input, p=0.5, training=True):
    """Elements zeroed with probability p, the others divided by 1 - p; equal for any layout."""
    return _weft.dropout(input, p) if training else input


def embedding(
    input,
    weight,
    padding_idx=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    sparse=False,
):
    """Rows `input` [...] of weight [vocabulary, d]: [..., d]. The gradient gets nothing from ids of
    row `padding_idx`. ValueError for a `max_norm`, `scale_grad_by_freq` and `sparse`."""
    _weft._check_embedding_options(max_norm, scale_grad_by_freq, sparse)
    return _weft.embedding(weight, input, padding_idx)


def embedding_bag(
    input,
    weight,
    offsets=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """Sums, means or maxima of the rows `input` of a table, by bag: a row each of input [bags, n],
    or, of input [n], the rows from each of `offsets` on."""
    if max_norm is not None or padding_idx is not None or scale_grad_by_freq:
        raise ValueError(
            "embedding_bag: max_norm, padding_idx or scale_grad_by_freq is given, expected none"
        )
    if include_last_offset:
        offsets = offsets[:-1]
    return _weft._embedding_bag(weight, input, offsets, mode, per_sample_weights)


globals().update(_FUNCTIONS)
_accept_words(globals())
