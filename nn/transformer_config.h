// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/transformer_config.h"

namespace weft {

/// Models that are deeper are taken for a mistake before they take memory and time.
inline constexpr int64_t kMostLayers = 10'000;

/// Returns why these numbers make no transformer, as the end of a sentence; empty when they do.
std::string mistake_in(const TransformerConfig& config);

}  // namespace weft
