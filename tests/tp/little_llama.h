// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/ranks.h"
#include "weft/tensor_parallel.h"
#include "weft/transformer.h"

namespace weft {

/// Sizes that few numbers of ranks divide, except the heads.
inline TransformerConfig little_llama(int64_t heads, int64_t kv_heads, int64_t layers = 2) {
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary
  TransformerConfig config{20, layers, heads, kv_heads, 6, 23, 37};
  config.deviation = 0.2;
  return config;
}

}  // namespace weft
