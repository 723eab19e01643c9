// SPDX-License-Identifier: Apache-2.0
#include "weft/error.h"
#include "weft/tensor_parallel.h"

namespace weft {

/// A module whose layers share one gathered input. Products in parts gather it themselves.
static void add_shared_input(const std::string& path, int parts, std::vector<ModuleStyle>& styles) {
  if (parts == 1) styles.push_back({path, PrepareInput{{Replicate()}}});
}

static void add_attention(const TransformerConfig& c, const Placement& between, int parts,
                          std::vector<ModuleStyle>& styles) {
  const std::string at = "model.layers.*.self_attn";
  add_shared_input(at, parts, styles);
  styles.push_back({at + ".q_proj", Colwise{.heads = c.heads, .parts = parts}});
  styles.push_back({at + ".k_proj", Colwise{.heads = c.kv_heads, .parts = parts}});
  styles.push_back({at + ".v_proj", Colwise{.heads = c.kv_heads, .parts = parts}});
  styles.push_back({at + ".o_proj", Rowwise{.output = between, .heads = c.heads, .parts = parts}});
  if (c.query_norm != QueryNorm::width) return;
  // The norm needs the whole width.
  for (const char* norm : {".q_norm", ".k_norm"}) {
    styles.push_back({at + norm, PrepareInput{{Replicate()}}});
    styles.push_back({at + norm, PrepareOutput{{Shard(2)}}});
  }
}

/// The norms between the matrix products.
static std::vector<std::string> norms_of(const TransformerConfig& c) {
  std::vector<std::string> norms = {"post_attention_layernorm"};
  const bool both = c.norm_place == NormPlace::both;
  const bool has_input = both || c.norm_place == NormPlace::before;
  if (has_input && (c.first_norm || c.layers > 1)) norms.emplace_back("input_layernorm");
  if (both) norms.emplace_back("pre_feedforward_layernorm");
  if (c.norm_place != NormPlace::before) norms.emplace_back("post_feedforward_layernorm");
  for (std::string& norm : norms) norm = "model.layers.*." + norm;
  if (c.embedding_norm) norms.emplace_back("model.embed_norm");
  if (c.final_norm) norms.emplace_back("model.norm");
  return norms;
}

std::vector<ModuleStyle> transformer_styles(const TransformerConfig& config,
                                            const TransformerStyleOptions& options) {
  if (options.parts > 1 && !options.sequence_parallel) {
    fail("transformer_styles: number of parts is ", options.parts,
         ", expected 1 without sequence_parallel");
  }
  const int parts = options.parts;
  const Placement between = options.sequence_parallel ? Placement(Shard(1)) : Replicate();
  std::vector<ModuleStyle> styles = {{"model.embed_tokens", Rowwise{.output = between}}};
  add_attention(config, between, parts, styles);
  add_shared_input("model.layers.*.mlp", parts, styles);
  if (config.gated) styles.push_back({"model.layers.*.mlp.gate_proj", Colwise{.parts = parts}});
  styles.push_back({"model.layers.*.mlp.up_proj", Colwise{.parts = parts}});
  styles.push_back({"model.layers.*.mlp.down_proj", Rowwise{.output = between, .parts = parts}});
  if (config.head == Head::linear || config.head == Head::transform) {
    styles.push_back({"lm_head", PrepareInput{{Replicate()}}});
    styles.push_back({"lm_head", Colwise()});
  }
  if (options.sequence_parallel) {
    for (const std::string& norm : norms_of(config)) styles.push_back({norm, SequenceParallel()});
  }
  return styles;
}

}  // namespace weft
