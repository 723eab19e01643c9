// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/error.h"
#include "weft/transformer_config.h"

namespace weft {

/// A Llama of 70 billion parameters, for simulated clusters.
inline TransformerConfig large_llama() {
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary, max_sequence
  return {8192, 80, 64, 8, 128, 28672, 128256, 8192};
}

/// The config.json of a small DeepSeek-V3 with six experts in two groups.
inline std::string small_deepseek(int vocabulary) {
  return concat(
      R"({"model_type":"deepseek_v3","hidden_size":20,"intermediate_size":13,)",
      R"("num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":4,"q_lora_rank":9,)",
      R"("kv_lora_rank":7,"qk_nope_head_dim":5,"qk_rope_head_dim":4,"v_head_dim":6,)",
      R"("max_position_embeddings":64,"n_routed_experts":6,"num_experts_per_tok":3,"n_group":2,)",
      R"("topk_group":1,"moe_intermediate_size":11,"first_k_dense_replace":1,"vocab_size":)",
      vocabulary, '}');
}

}  // namespace weft
