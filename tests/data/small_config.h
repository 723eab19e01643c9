// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/transformer.h"

namespace weft {

/// A model whose sizes differ from each other.
inline const TransformerConfig kSmallConfig{.dim = 16,
                                            .layers = 2,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .head_dim = 4,
                                            .ffn = 24,
                                            .vocabulary = 31,
                                            .max_sequence = 32,
                                            .deviation = 0.3};

}  // namespace weft
