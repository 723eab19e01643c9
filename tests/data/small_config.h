// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/transformer.h"

namespace weft {

/// A model whose sizes differ from each other.
inline const TransformerConfig kSmallConfig = [] {
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary, max_sequence
  TransformerConfig config{16, 2, 4, 2, 4, 24, 31, 32};
  config.deviation = 0.3;
  return config;
}();

}  // namespace weft
