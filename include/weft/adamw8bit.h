// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/optimizers.h"

namespace weft {

struct WEFT_API AdamW8bitOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  /// All parameters unless given.
  DecayPredicate decays = {};
  /// Parameters with fewer elements, and those of fewer than 2 dims, have moments of f32.
  double least_elements = 4096;
};

/// AdamW whose moments have 8 bits an element and a scale for 128 elements of a row (`adamw8_`):
/// 2.06 bytes an element instead of 8. The bits of the state depend on neither mesh nor layout. A
/// step of a parameter whose last dim is cut has one all-reduce of its scales. State: "m", "v" and
/// "m_scale", "v_scale", which are whole along the last dim.
class WEFT_API AdamW8bit final : public GroupedOptimizer<AdamW8bit, AdamW8bitOptions> {
 public:
  using GroupedOptimizer::GroupedOptimizer;
  std::vector<std::string> moments() const override { return {"m", "v", "m_scale", "v_scale"}; }

 protected:
  void update(const Update& update) override;
  void update_all(std::span<const Update> updates) override;
  int kind_of(size_t parameter) const override;
  std::optional<StateSpec> state_spec(size_t parameter, size_t moment) const override;

 private:
  bool has_8_bits(size_t parameter) const;
  AdamWStep numbers_of(size_t parameter, int64_t step) const;
  void update_whole(size_t parameter, const Tensor& gradient_scale);
};

WEFT_API std::vector<Hyperparameter> hyperparameters(AdamW8bitOptions& options);

}  // namespace weft
