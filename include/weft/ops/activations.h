// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Functions of torch.nn.functional, with PyTorch's defaults, that are compositions of ops: layouts
// and gradients follow from these.

/// a where it is positive, slope * a elsewhere.
WEFT_API Tensor leaky_relu(const Tensor& a, double slope = 0.01);
/// The same with a slope for all, or one for each channel (dim 1): [1] or [channels].
WEFT_API Tensor prelu(const Tensor& a, const Tensor& slopes);
/// a where it is positive, alpha * (exp(a) - 1) elsewhere.
WEFT_API Tensor elu(const Tensor& a, double alpha = 1);
/// a where it is positive, alpha * (exp(a / alpha) - 1) elsewhere.
WEFT_API Tensor celu(const Tensor& a, double alpha = 1);
/// elu with the two constants of G. Klambauer et al., "Self-Normalizing Neural Networks", 2017.
WEFT_API Tensor selu(const Tensor& a);
/// a limited to [low, high]; the gradient at both is 0.
WEFT_API Tensor hardtanh(const Tensor& a, double low = -1, double high = 1);
/// (a + 3) / 6 limited to [0, 1], and a times that.
WEFT_API Tensor hardsigmoid(const Tensor& a);
WEFT_API Tensor hardswish(const Tensor& a);
/// log(1 + exp(beta * a)) / beta; a where beta * a is greater than `threshold`.
WEFT_API Tensor softplus(const Tensor& a, double beta = 1, double threshold = 20);
/// log(sigmoid(a)).
WEFT_API Tensor logsigmoid(const Tensor& a);
/// a * tanh(softplus(a)).
WEFT_API Tensor mish(const Tensor& a);
/// a / (1 + |a|).
WEFT_API Tensor softsign(const Tensor& a);
/// a - tanh(a).
WEFT_API Tensor tanhshrink(const Tensor& a);
/// a moved by `bound` towards 0, and 0 within that of 0.
WEFT_API Tensor softshrink(const Tensor& a, double bound = 0.5);
/// a, and 0 within `bound` of 0.
WEFT_API Tensor hardshrink(const Tensor& a, double bound = 0.5);
/// a where it is greater than `least`, `value` elsewhere.
WEFT_API Tensor threshold(const Tensor& a, double least, double value);
/// The first half of `dim` times the sigmoid of the second.
WEFT_API Tensor glu(const Tensor& a, int dim = -1);

/// a divided by its norm along `dim`, or by `eps` where that is greater.
WEFT_API Tensor normalize(const Tensor& a, double order = 2, int dim = 1, double eps = 1e-12);
/// The cosine of the angle between vectors along `dim`; shapes broadcast.
WEFT_API Tensor cosine_similarity(const Tensor& a, const Tensor& b, int dim = 1, double eps = 1e-8);
/// The norm of a - b + eps along the last dim.
WEFT_API Tensor pairwise_distance(const Tensor& a, const Tensor& b, double order = 2,
                                  double eps = 1e-6, bool keepdim = false);
/// The distances of all pairs of rows i < j: [n (n - 1) / 2].
WEFT_API Tensor pdist(const Tensor& a, double order = 2);
/// a divided by (k + alpha * the mean of squares of `size` channels around it) ^ beta.
WEFT_API Tensor local_response_norm(const Tensor& a, int64_t size, double alpha = 1e-4,
                                    double beta = 0.75, double k = 1);
/// a [..., i] and b [..., j] by weight [o, i, j] (+ bias [o]): [..., o].
WEFT_API Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight,
                         const Tensor& bias = {});

/// [..., channels * r^2, h, w] as [..., channels, h * r, w * r], and back.
WEFT_API Tensor pixel_shuffle(const Tensor& a, int64_t r);
WEFT_API Tensor pixel_unshuffle(const Tensor& a, int64_t r);
/// Channels (dim 1) of `groups` groups, in the order of their places in the groups.
WEFT_API Tensor channel_shuffle(const Tensor& a, int64_t groups);
/// a with pads[0] elements before and pads[1] behind the last dim, [2] and [3] at the one before
/// it, ...: "reflect", "replicate" or "circular". Negative numbers remove elements.
WEFT_API Tensor pad_as(const Tensor& a, const std::vector<int64_t>& pads, std::string_view mode);

}  // namespace weft
