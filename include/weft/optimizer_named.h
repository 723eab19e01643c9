// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/optimizers.h"

namespace weft {

/// Options that optimizers have in common, for programs that take one by name.
struct WEFT_API NamedOptimizerOptions {
  double learning_rate = 1e-3;
  double weight_decay = 0;
  /// Each is the optimizer's unless given; beta1 of SGD and Muon is the momentum.
  std::optional<double> beta1 = {}, beta2 = {}, eps = {};
  /// All parameters unless given; see `no_decay`.
  DecayPredicate decays = {};
  /// See AdamWOptions; std::invalid_argument for optimizers that have no choice.
  DType moments = f32;
  Tier offload = {};
};

/// "adamw", "adam", "adamw8bit", "lion", "muon", "sgd" and "lamb".
WEFT_API std::vector<std::string> optimizer_names();
/// Makes the optimizer of that name; std::invalid_argument for another one. Muon's rates are those
/// that fit AdamW (`MuonRate::match_rms_adamw`), because one rate is given for all parameters. SGD
/// has the momentum 0.9.
WEFT_API std::unique_ptr<Optimizer> optimizer_named(std::string_view name,
                                                    std::vector<NamedParameter> parameters,
                                                    const NamedOptimizerOptions& options);

}  // namespace weft
