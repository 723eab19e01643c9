// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/transformer.h"

namespace weft {

/// Returns why these numbers make no Llama, as the end of a sentence; empty when they do.
std::string mistake_in(const TransformerConfig& config);

}  // namespace weft
