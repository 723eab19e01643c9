// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/transformer_config.h"

namespace weft {

/// A Llama of 70 billion parameters, for simulated clusters.
inline TransformerConfig large_llama() {
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary, max_sequence
  return {8192, 80, 64, 8, 128, 28672, 128256, 8192};
}

}  // namespace weft
