// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/transformer.h"

namespace weft::cli {

/// What the experts of a model computed in one step, over all ranks.
struct ExpertReport {
  /// Rows of each expert, by sparse layer.
  std::vector<std::vector<double>> load;
  int64_t dropped = 0;
  /// Empty unless it is part of the loss.
  std::optional<double> balance_loss;

  /// The largest load of an expert over the mean of its layer; 1 is balanced.
  double imbalance() const;
};

/// Ends a step of the experts, after the update: reports it, and moves the biases that balance the
/// load by `rate`. Empty for a dense model. Collective.
std::optional<ExpertReport> end_step_of_experts(TransformerModel& model, double rate);

}  // namespace weft::cli
