// SPDX-License-Identifier: Apache-2.0
#include "weft/tensor_parallel.h"

namespace weft {

static void add_attention(const TransformerConfig& c, const Placement& between,
                          std::vector<ModuleStyle>& styles) {
  const std::string at = "model.layers.*.self_attn";
  Layouts whole{.inputs = {Replicate()}};
  if (c.sinks) whole.parameters = {{"sinks", Shard(0)}};
  styles.push_back({at, whole});
  styles.push_back({at + ".q_proj", Colwise{.heads = c.heads}});
  styles.push_back({at + ".k_proj", Colwise{.heads = c.kv_heads}});
  styles.push_back({at + ".v_proj", Colwise{.heads = c.kv_heads}});
  styles.push_back({at + ".o_proj", Rowwise{.output = between, .heads = c.heads}});
  if (c.query_norm != QueryNorm::width) return;
  // The norm of a cut width: one number a token, the sum of its squares, is reduced over the ranks.
  Layouts cut{.parameters = {{"weight", Shard(0)}}};
  if (c.norm == NormKind::layer && c.norm_bias) cut.parameters.emplace_back("bias", Shard(0));
  for (const char* norm : {".q_norm", ".k_norm"}) styles.push_back({at + norm, cut});
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
  const Placement between = options.sequence_parallel ? Placement(Shard(1)) : Replicate();
  std::vector<ModuleStyle> styles = {{"model.embed_tokens", Rowwise{.output = between}}};
  add_attention(config, between, styles);
  styles.push_back({"model.layers.*.mlp", PrepareInput{{Replicate()}}});
  if (config.gated) styles.push_back({"model.layers.*.mlp.gate_proj", Colwise()});
  styles.push_back({"model.layers.*.mlp.up_proj", Colwise()});
  styles.push_back({"model.layers.*.mlp.down_proj", Rowwise{.output = between}});
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
