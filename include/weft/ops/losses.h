// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "weft/export.h"
#include "weft/ops/networks.h"
#include "weft/tensor.h"

namespace weft {

// Losses with PyTorch's names. `reduction` is "mean", "sum" or "none". Input and target have equal
// shapes unless a function states others. `mse_loss` and `cross_entropy` are in networks.h.

/// |input - target|.
WEFT_API Tensor l1_loss(const Tensor& input, const Tensor& target,
                        std::string_view reduction = "mean");
/// (input - target)^2 / (2 beta) where the distance is below beta, elsewhere the distance - beta /
/// 2.
WEFT_API Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                               std::string_view reduction = "mean", double beta = 1);
/// (input - target)^2 / 2 where the distance is below delta, elsewhere delta * (distance - delta /
/// 2).
WEFT_API Tensor huber_loss(const Tensor& input, const Tensor& target,
                           std::string_view reduction = "mean", double delta = 1);
/// -(target * log(input) + (1 - target) * log(1 - input)) * weight, where a logarithm is at least
/// -100. An empty weight stands for ones.
WEFT_API Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                                     const Tensor& weight = {},
                                     std::string_view reduction = "mean");
/// The same of sigmoid(input), where `pos_weight` multiplies the loss of positive targets.
WEFT_API Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                                 const Tensor& weight = {},
                                                 std::string_view reduction = "mean",
                                                 const Tensor& pos_weight = {});
/// target * (log(target) - input); with `log_target`, target is a logarithm too. `reduction` may
/// also be "batchmean": the sum divided by the size of dim 0.
WEFT_API Tensor kl_div(const Tensor& input, const Tensor& target,
                       std::string_view reduction = "mean", bool log_target = false);
/// -input[target] of log-probabilities [..., classes] and classes [...]; the mean is weighted by
/// the `weight` [classes] of the targets. Rows whose target is `ignore_index` do not count.
WEFT_API Tensor nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                         int64_t ignore_index = kIgnoredTarget,
                         std::string_view reduction = "mean");

}  // namespace weft
