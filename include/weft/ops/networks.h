// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/ops/attention.h"
#include "weft/ops/cross_entropy.h"
#include "weft/tensor.h"

namespace weft {

/// softmax: exp(a) / sum of exp(a) along the last dim; log_softmax: its logarithm.
WEFT_API Tensor softmax(const Tensor& a);
WEFT_API Tensor log_softmax(const Tensor& a);

/// Rows `ids` [...] (i32 or i64) of weight [vocabulary, d]: [..., d]. std::invalid_argument names
/// an id that is not a row.
WEFT_API Tensor embedding(const Tensor& weight, const Tensor& ids);

/// x / sqrt(mean of x^2 along the last dim + eps) * weight [d]; an empty weight stands for ones.
WEFT_API Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-5);
/// (x - mean) / sqrt(variance + eps) * weight [d] + bias [d], along the last dim; an empty weight
/// stands for ones, an empty bias for zeros.
WEFT_API Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                           double eps = 1e-5);

/// Rotary position embedding of x [batch, sequence, heads, d] in Hugging Face's "rotate half"
/// convention: rotates pair (i, i + d/2) by position * theta^(-2i/d). Positions start at
/// `position`.
WEFT_API Tensor rope(const Tensor& x, double theta = 10000, int64_t position = 0);
/// The same with given angles: rotates pair (i, i + p) by position * frequencies[i] and multiplies
/// it by `scale`, where frequencies is f32 [p]. The elements of a head after the first 2 p stay.
WEFT_API Tensor rope(const Tensor& x, const Tensor& frequencies, double scale = 1,
                     int64_t position = 0);

/// silu(gate) * up, of equal shapes.
WEFT_API Tensor swiglu(const Tensor& gate, const Tensor& up);

/// Sets elements of x to zero with probability p in [0, 1) and divides the others by 1 - p. Draws
/// from the rank's random state; the result is the same for any layout of x.
WEFT_API Tensor dropout(const Tensor& x, double p);

}  // namespace weft
