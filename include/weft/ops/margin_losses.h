// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "weft/export.h"
#include "weft/ops/losses.h"

namespace weft {

// More losses with PyTorch's names: of margins, of several labels, and of distributions.
// `reduction` is "mean", "sum" or "none"; targets of two kinds are 1 and -1.

/// max(0, -target (a - b) + margin).
WEFT_API Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                                    double margin = 0, std::string_view reduction = "mean");
/// input where target is 1, max(0, margin - input) where it is -1.
WEFT_API Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin = 1,
                                     std::string_view reduction = "mean");
/// log(1 + exp(-target input)).
WEFT_API Tensor soft_margin_loss(const Tensor& input, const Tensor& target,
                                 std::string_view reduction = "mean");
/// Of the cosine c of vectors along the last dim: 1 - c where target [...] is 1, max(0, c - margin)
/// where it is -1.
WEFT_API Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                                      double margin = 0, std::string_view reduction = "mean");
/// max(0, |anchor - positive| - |anchor - negative| + margin) of vectors along the last dim, with
/// the norm of order p. With `swap` the distance of positive and negative counts where it is
/// smaller.
WEFT_API Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive,
                                    const Tensor& negative, double margin = 1, double p = 2,
                                    double eps = 1e-6, bool swap = false,
                                    std::string_view reduction = "mean");
/// The sum over other classes of max(0, margin - input[target] + input)^p over the number of
/// classes, of input [rows, classes] and classes [rows]. An empty weight [classes] stands for ones.
WEFT_API Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int p = 1,
                                  double margin = 1, const Tensor& weight = {},
                                  std::string_view reduction = "mean");
/// The sum of max(0, 1 - input[label] + input[other]) over labels and others, over the number of
/// classes: target [rows, classes] begins with the labels of a row, which -1 follows.
WEFT_API Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target,
                                       std::string_view reduction = "mean");
/// The mean over classes of binary_cross_entropy_with_logits, times `weight`.
WEFT_API Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                            const Tensor& weight = {},
                                            std::string_view reduction = "mean");
/// exp(input) - target input; without `log_input`, input - target log(input + eps). `full` adds
/// Stirling's approximation of log(target!).
WEFT_API Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input = true,
                                 bool full = false, double eps = 1e-8,
                                 std::string_view reduction = "mean");
/// (log(variance) + (input - target)^2 / variance) / 2, with a variance of at least `eps`; `full`
/// adds log(2 pi) / 2.
WEFT_API Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& variance,
                                  bool full = false, double eps = 1e-6,
                                  std::string_view reduction = "mean");

/// cross_entropy of logits whose classes are in the last dim or, where only that fits the targets,
/// in dim 1, as in PyTorch: [rows, classes, ...] against classes [rows, ...].
WEFT_API Tensor cross_entropy_of_classes(const Tensor& logits, const Tensor& targets,
                                         const CrossEntropyOptions& options = {});

}  // namespace weft
