// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/optimizers.h"

namespace weft {

struct WEFT_API LionOptions {
  double learning_rate = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
  /// All parameters unless given.
  DecayPredicate decays = {};
  /// See AdamWOptions.
  DType moments = f32;
  Tier offload = {};
};

/// Evolved sign momentum (Chen et al., 2023): `lion_`. Its rates are 3 to 10 times smaller than
/// those of AdamW, and its weight decay is larger by as much. State: "m".
class WEFT_API Lion final : public GroupedOptimizer<Lion, LionOptions> {
 public:
  using GroupedOptimizer::GroupedOptimizer;
  std::vector<std::string> moments() const override { return {"m"}; }

 protected:
  void update(const Update& update) override;
  DType moment_dtype() const override { return options_[0].moments; }
  std::vector<double> rates(size_t, int64_t) const override { return {}; }
};

WEFT_API std::vector<Hyperparameter> hyperparameters(LionOptions& options);

}  // namespace weft
