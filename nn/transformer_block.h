// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "weft/transformer.h"

namespace weft {

/// Makes one decoder layer, [batch, sequence, dim] -> [batch, sequence, dim]: attention and
/// feed-forward, each applied to the normalised input and added to it.
std::shared_ptr<Module> make_transformer_block(const TransformerConfig& config);

}  // namespace weft
