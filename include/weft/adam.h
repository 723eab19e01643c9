// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/optimizers.h"

namespace weft {

struct WEFT_API AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  /// Added to the gradients, times the parameters.
  double weight_decay = 0;
  /// All parameters unless given.
  DecayPredicate decays = {};
  /// See AdamWOptions.
  DType moments = f32;
  Tier offload = {};
};

/// Adam (Kingma and Ba, 2015), whose weight decay is part of the gradient, unlike AdamW's. With
/// weight decay a step needs a copy of the gradients that one call updates. State: "m", "v".
class WEFT_API Adam final : public GroupedOptimizer<Adam, AdamOptions> {
 public:
  using GroupedOptimizer::GroupedOptimizer;
  std::vector<std::string> moments() const override { return {"m", "v"}; }

 protected:
  void update(const Update& update) override;
  DType moment_dtype() const override { return options_[0].moments; }
  std::vector<double> rates(size_t parameter, int64_t step) const override;

 private:
  AdamWStep numbers_of(size_t parameter, int64_t step) const;
};

WEFT_API std::vector<Hyperparameter> hyperparameters(AdamOptions& options);

}  // namespace weft
