// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// The target of rows that do not count, as in PyTorch and Hugging Face.
inline constexpr int64_t kIgnoredTarget = -100;

/// What becomes of the rows' losses. The mean is over the rows that count, weighted by the weights
/// of their targets.
enum class LossReduction : uint8_t { mean, sum, none };

struct CrossEntropyOptions {
  /// Weights of the classes: [classes].
  Tensor weight = {};
  /// The share of the target, in [0, 1], that all classes have evenly.
  double label_smoothing = 0;
  /// Rows with this target do not count.
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

/// How linear_cross_entropy computes logits: softcap * tanh(z / softcap), where z is multiplier * x
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

}  // namespace weft
