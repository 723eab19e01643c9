// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// exp(a) / sum of exp(a) along the last dim; its log.
WEFT_API Tensor softmax(const Tensor& a);
WEFT_API Tensor log_softmax(const Tensor& a);

/// Mean over all rows of -log softmax(logits)[target]. logits [..., vocabulary], targets [...] (i32
/// or i64). Rows whose target is negative count neither in the sum nor in the mean.
WEFT_API Tensor cross_entropy(const Tensor& logits, const Tensor& targets);
/// The same a row: f32 [...], 0 where the target is negative.
WEFT_API Tensor cross_entropy_rows(const Tensor& logits, const Tensor& targets);

/// Rows `ids` [...] (i32 or i64) of weight [vocabulary, d]: [..., d].
WEFT_API Tensor embedding(const Tensor& weight, const Tensor& ids);

/// x / sqrt(mean of x^2 along the last dim + eps) * weight [d].
WEFT_API Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5);
/// (x - mean) / sqrt(variance + eps) * weight [d] + bias [d], along the last dim.
WEFT_API Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           double eps = 1e-5);

/// Rotary position embedding of x [batch, sequence, heads, d] in Hugging Face's "rotate half"
/// convention: pair (i, i + d/2) turns by position * theta^(-2i/d); positions start at `position`.
WEFT_API Tensor rope(const Tensor& x, double theta = 10000, int64_t position = 0);

/// silu(gate) * up.
WEFT_API Tensor swiglu(const Tensor& gate, const Tensor& up);

/// softmax(q k^T * scale) v by heads, for q [batch, s, heads, d], k and v [batch, t, kv heads, d]
/// (heads a multiple of kv heads): [batch, s, heads, d]. Causal: query i sees the positions up to
/// t - s + i. scale 0 means 1 / sqrt(d).
WEFT_API Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal = true,
                          double scale = 0);

/// x with elements zeroed with probability p and the others divided by 1 - p. Draws from the rank's
/// random state; equal for any layout of x.
WEFT_API Tensor dropout(const Tensor& x, double p);

}  // namespace weft
