// SPDX-License-Identifier: Apache-2.0
#include "weft/error.h"
#include "weft/tensor_parallel.h"

namespace weft {

static void add_attention(const TransformerConfig& c, const Placement& between, int parts,
                          std::vector<ModuleStyle>& styles) {
  const std::string at = "model.layers.*.self_attn";
  Layouts shared;
  // Products in parts gather the input themselves.
  if (parts == 1 || c.kv_lora_rank > 0) shared.inputs = {Replicate()};
  if (c.sinks) shared.parameters = {{"sinks", Shard(0)}};
  styles.push_back({at, shared});
  if (c.kv_lora_rank > 0) {
    styles.push_back(
        {at + (c.q_lora_rank > 0 ? ".q_b_proj" : ".q_proj"), Colwise{.heads = c.heads}});
    styles.push_back({at + ".kv_b_proj", Colwise{.heads = c.heads}});
    styles.push_back({at + ".o_proj", Rowwise{.output = between, .heads = c.heads}});
    return;
  }
  styles.push_back({at + ".q_proj", Colwise{.heads = c.heads, .parts = parts}});
  styles.push_back({at + ".k_proj", Colwise{.heads = c.kv_heads, .parts = parts}});
  styles.push_back({at + ".v_proj", Colwise{.heads = c.kv_heads, .parts = parts}});
  styles.push_back({at + ".o_proj", Rowwise{.output = between, .heads = c.heads, .parts = parts}});
  if (c.query_norm != QueryNorm::width) return;
  // The norm of a cut width: one number a token, the sum of its squares, is reduced over the ranks.
  Layouts cut{.parameters = {{"weight", Shard(0)}}};
  if (c.norm == NormKind::layer && c.norm_bias) cut.parameters.emplace_back("bias", Shard(0));
  for (const char* norm : {".q_norm", ".k_norm"}) styles.push_back({at + norm, cut});
}

/// The experts' and the shared expert's sums stay partial until they are added.
static void add_experts(const TransformerConfig& c, const Placement& between,
                        std::vector<ModuleStyle>& styles) {
  const std::string at = "model.layers.*.mlp";
  styles.push_back({at, PrepareOutput{{between}}});
  styles.push_back({at + ".experts", Layouts{.parameters = {{"gate_proj", Shard(1)},
                                                            {"up_proj", Shard(1)},
                                                            {"down_proj", Shard(2)}}}});
  if (c.shared_ffn == 0) return;
  const std::string shared = at + (c.shared_gate ? ".shared_expert" : ".shared_experts");
  styles.push_back({shared + ".gate_proj", Colwise()});
  styles.push_back({shared + ".up_proj", Colwise()});
  styles.push_back({shared + ".down_proj", Rowwise{.output = {}}});
}

static void add_feed_forwards(const TransformerConfig& c, const Placement& between, int parts,
                              std::vector<ModuleStyle>& styles) {
  const std::string at = "model.layers.*.mlp";
  bool has_sparse = false, has_dense = false;
  for (int64_t i = 0; i < c.layers; ++i) (c.is_sparse(i) ? has_sparse : has_dense) = true;
  // Experts need the whole input; the styles name feed-forwards of all layers alike.
  if (has_sparse) parts = 1;
  if (parts == 1) styles.push_back({at, PrepareInput{{Replicate()}}});
  if (has_sparse) add_experts(c, between, styles);
  if (!has_dense) return;
  if (c.gated) styles.push_back({at + ".gate_proj", Colwise{.parts = parts}});
  styles.push_back({at + ".up_proj", Colwise{.parts = parts}});
  styles.push_back({at + ".down_proj", Rowwise{.output = between, .parts = parts}});
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
  add_feed_forwards(config, between, parts, styles);
  if (config.head == Head::linear || config.head == Head::transform) {
    styles.push_back({"lm_head", PrepareInput{{Replicate()}}});
    styles.push_back({"lm_head", Colwise()});
  }
  if (options.sequence_parallel) {
    for (const std::string& norm : norms_of(config)) styles.push_back({norm, SequenceParallel()});
  }
  return styles;
}

std::vector<ModuleStyle> expert_styles() {
  return {{"model.layers.*.mlp.experts", ExpertParallel()}};
}

}  // namespace weft
