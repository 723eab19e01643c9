// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/llama.h"

namespace weft {

/// Why no Llama can be built so, as the end of a sentence; empty when one can.
std::string mistake_in(const LlamaConfig& config);

}  // namespace weft
