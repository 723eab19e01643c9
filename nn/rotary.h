// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "weft/tensor.h"
#include "weft/transformer_config.h"

namespace weft {

/// Rotary position embedding of some layers of a model.
class Rotary {
 public:
  Rotary(const TransformerConfig& config, double theta, const RopeScaling& scaling);

  /// Rotates x [batch, n, heads, head dim], the tokens from `position` on.
  Tensor operator()(const Tensor& x, int64_t position);

 private:
  const Tensor& frequencies_on(const Tensor& x, int64_t length);

  TransformerConfig config_;
  double theta_;
  RopeScaling scaling_;
  double factor_;
  /// The last tensor of frequencies, its values, and the layout of the operands that it is for.
  std::vector<double> values_;
  Tensor tensor_;
  Sharding sharding_;
};

}  // namespace weft
