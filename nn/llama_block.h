// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "weft/llama.h"

namespace weft {

/// One decoder layer, [batch, sequence, dim] -> the same: attention and feed-forward, each of the
/// normalised input and added to it.
std::shared_ptr<Module> make_llama_block(const LlamaConfig& config);

}  // namespace weft
