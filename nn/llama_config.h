// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/llama.h"

namespace weft {

/// Returns why these numbers make no Llama, as the end of a sentence; empty when they do.
std::string mistake_in(const LlamaConfig& config);

}  // namespace weft
