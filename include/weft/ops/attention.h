// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// Which keys a query attends to, and how its scores change. Queries are the last s of the t
/// positions: query i has position t - s + i. The order is: scale, softcap, alibi, mask; then the
/// rows' softmax, with sinks; then dropout.
struct AttentionOptions {
  /// A query attends to positions up to its own.
  bool causal = true;
  /// Factor of the scores; 0 means 1 / sqrt(d).
  double scale = 0;
  /// Sliding window: a query at position p attends to keys after p - window and, if not causal,
  /// before p + window; 0 means all.
  int64_t window = 0;
  /// Replaces scores by softcap * tanh(score / softcap); 0 means none.
  double softcap = 0;
  /// Bool (true: attends) or floating (added to the scores, gets a gradient); broadcasts to [batch,
  /// heads, s, t].
  Tensor mask = {};
  /// [heads]: one more logit in the denominator of each row's softmax, without a value; gets a
  /// gradient.
  Tensor sinks = {};
  /// Integers [batch, t], ids of packed documents: a query attends to keys of its own document.
  Tensor segments = {};
  /// Slopes [heads] of ALiBi: slope * distance is subtracted from the scores. Without a gradient.
  Tensor alibi = {};
  /// Probability in [0, 1) with which a probability is set to 0; the others are divided by 1 -
  /// dropout. Draws from the rank's random state; equal for any layout.
  double dropout = 0;
};

/// softmax(q k^T * scale) v for each head, changed as the options say. q is [batch, s, heads, d], k
/// and v are [batch, t, kv heads, d] (heads is a multiple of kv heads); returns [batch, s, heads,
/// d]. Memory grows with the sequence, not with its square. A query that attends to no key gives
/// zeros.
WEFT_API Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                          const AttentionOptions& options = {});
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, std::same_as<bool> auto causal,
                 double scale = 0) {
  return attention(q, k, v, AttentionOptions{.causal = causal, .scale = scale});
}

}  // namespace weft
