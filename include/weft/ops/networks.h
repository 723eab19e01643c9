// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// softmax: exp(a) / sum of exp(a) along the last dim; log_softmax: its logarithm.
WEFT_API Tensor softmax(const Tensor& a);
WEFT_API Tensor log_softmax(const Tensor& a);

/// Rows `ids` [...] (i32 or i64) of weight [vocabulary, d]: [..., d]. std::invalid_argument names
/// an id that is not a row.
WEFT_API Tensor embedding(const Tensor& weight, const Tensor& ids);
/// Sums, means or maxima ("sum", "mean", "max") of the rows `ids` of weight [vocabulary, d], by
/// bag: a row each of ids [bags, n]; or of ids [n], those from each of `offsets` [bags] on.
/// `scales` multiply the rows.
WEFT_API Tensor embedding_bag(const Tensor& weight, const Tensor& ids,
                              const std::optional<Tensor>& offsets = {},
                              std::string_view mode = "mean",
                              const std::optional<Tensor>& scales = {});
/// a [...] as rows [..., classes] that are 1 at the element's number and 0 elsewhere: i64. Without
/// `classes`, as many as the largest number needs.
WEFT_API Tensor one_hot(const Tensor& a, int64_t classes = -1);

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

/// Sets elements of x to zero with probability p in [0, 1] and divides the others by 1 - p. Draws
/// from the rank's random state; the result is the same for any layout of x.
WEFT_API Tensor dropout(const Tensor& x, double p);

/// (input - target)^2 element by element, of equal shapes: its mean, its sum, or for `reduction`
/// "none" all of it.
WEFT_API Tensor mse_loss(const Tensor& input, const Tensor& target,
                         std::string_view reduction = "mean");

/// The target of rows that do not count, as in PyTorch and Hugging Face.
inline constexpr int64_t kIgnoredTarget = -100;

/// The reduction of the rows' losses. The mean is over the rows that count, weighted by the weights
/// of their targets.
enum class LossReduction : uint8_t { mean, sum, none };

struct CrossEntropyOptions {
  /// Weights of the classes: [classes].
  Tensor weight = {};
  /// The share of the target, in [0, 1], that all classes have evenly.
  double label_smoothing = 0;
  /// Rows with this target, between -2^24 and 2^24, do not count.
  int64_t ignore_index = kIgnoredTarget;
  /// Factor of logsumexp(logits)^2, which is added to the loss of each row that counts.
  double z_loss = 0;
  LossReduction reduction = LossReduction::mean;
};

/// Cross-entropy of logits [..., classes]; targets are classes [...] (integers), or probabilities
/// of the logits' shape, whose mean is over all rows. std::invalid_argument names a target that is
/// neither a class nor ignored. NaN when no row counts.
WEFT_API Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                              const CrossEntropyOptions& options = {});
/// The loss of each row: f32 [...] (f64 for f64 logits), 0 where the row does not count.
WEFT_API Tensor cross_entropy_rows(const Tensor& logits, const Tensor& targets);

/// The logits of linear_cross_entropy: softcap * tanh(z / softcap), where z is multiplier * x
/// weight^T + bias [classes]; softcap 0 leaves z.
struct LinearCrossEntropyOptions {
  CrossEntropyOptions loss = {};
  Tensor bias = {};
  double softcap = 0, multiplier = 1;
  /// Logits of at most that many elements, divided by the ranks that share the rows, are computed
  /// whole, which saves computing them again.
  int64_t whole_up_to = int64_t{1} << 22;
};

/// cross_entropy of logits made by a linear layer from x [..., d] and weight [classes, d]. Large
/// logits never exist whole: parts of them are computed, and again in backward. targets are classes
/// [...]. With a weight that is sharded by classes, ranks exchange three numbers per row.
WEFT_API Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                                     const LinearCrossEntropyOptions& options = {});

/// The keys that a query attends to, and the changes of its scores. Queries are the last s of the t
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
  /// Integers [batch, t], ids of packed documents: a query attends to keys of the same document.
  Tensor segments = {};
  /// Slopes [heads] of ALiBi: slope * distance is subtracted from the scores. They get no gradient.
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
