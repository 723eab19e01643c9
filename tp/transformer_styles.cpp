// SPDX-License-Identifier: Apache-2.0
#include "weft/tensor_parallel.h"

namespace weft {

std::vector<ModuleStyle> transformer_styles(const TransformerConfig& config,
                                            const TransformerStyleOptions& options) {
  const Placement between = options.sequence_parallel ? Placement(Shard(1)) : Replicate();
  std::vector<ModuleStyle> styles = {
      {"model.embed_tokens", Rowwise{.output = between}},
      {"model.layers.*.self_attn", PrepareInput{{Replicate()}}},
      {"model.layers.*.self_attn.q_proj", Colwise{.heads = config.heads}},
      {"model.layers.*.self_attn.k_proj", Colwise{.heads = config.kv_heads}},
      {"model.layers.*.self_attn.v_proj", Colwise{.heads = config.kv_heads}},
      {"model.layers.*.self_attn.o_proj", Rowwise{.output = between, .heads = config.heads}},
      {"model.layers.*.mlp", PrepareInput{{Replicate()}}},
      {"model.layers.*.mlp.gate_proj", Colwise()},
      {"model.layers.*.mlp.up_proj", Colwise()},
      {"model.layers.*.mlp.down_proj", Rowwise{.output = between}},
      {"lm_head", PrepareInput{{Replicate()}}},
      {"lm_head", Colwise()},
  };
  if (options.sequence_parallel) {
    styles.push_back({"model.layers.*.input_layernorm", SequenceParallel()});
    styles.push_back({"model.layers.*.post_attention_layernorm", SequenceParallel()});
    styles.push_back({"model.norm", SequenceParallel()});
  }
  return styles;
}

}  // namespace weft
