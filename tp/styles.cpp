// SPDX-License-Identifier: Apache-2.0
#include "tp/styles.h"

#include <fnmatch.h>

#include <algorithm>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/indices.hpp>
#include <range/v3/view/split.hpp>
#include <range/v3/view/take.hpp>
#include <set>

#include "weft/error.h"
#include "weft/extend/split_products.h"
#include "weft/layers.h"

namespace weft::tp {

namespace views = ranges::views;

/// Returns whether a module of Colwise or Rowwise is a Linear, otherwise an Embedding.
static bool is_linear(const char* style, int parts, const std::string& path, const Module& module) {
  const auto* layer = dynamic_cast<const Linear*>(&module);
  const bool linear = layer != nullptr;
  if (!linear && !dynamic_cast<const Embedding*>(&module)) {
    fail("parallelize: ", in_quotes(path),
         " is another module, expected a Linear or an Embedding for ", style,
         "; Layouts states how any parameters are laid out");
  }
  if (parts < 1 || parts > kMostProductParts) {
    fail("parallelize: number of parts of ", in_quotes(path), " is ", parts,
         ", expected one from 1 to ", kMostProductParts);
  }
  if (parts > 1 && !linear) {
    fail("parallelize: ", in_quotes(path), " is an Embedding, expected a Linear for products in ",
         parts, " parts");
  }
  if (parts > 1 && layer->product()) {
    fail("parallelize: ", in_quotes(path), " has a custom product, expected that of a Linear for ",
         "products in ", parts, " parts");
  }
  return linear;
}

static ModuleLayouts resolved(const Colwise& style, const std::string& path, const Module& module) {
  const bool linear = is_linear("Colwise", style.parts, path, module);
  ModuleLayouts layouts{.parameters = {{"weight", linear ? Shard(0) : Shard(1)}},
                        .inputs = {Replicate()},
                        .outputs = {style.output},
                        .heads = style.heads,
                        .shares_heads = style.shares_heads,
                        .parts = style.parts};
  if (linear) layouts.parameters.emplace_back("bias", Shard(0));
  return layouts;
}

static ModuleLayouts resolved(const Rowwise& style, const std::string& path, const Module& module) {
  const bool linear = is_linear("Rowwise", style.parts, path, module);
  const bool scatters = style.output && style.output->is_shard() && style.output->dim() >= 0;
  if (style.parts > 1 && !scatters) {
    const std::string stated = style.output ? concat(*style.output) : "not stated";
    fail("parallelize: output of ", in_quotes(path), " is ", stated,
         ", expected Shard of a dim counted from the first for a product in ", style.parts,
         " parts");
  }
  return {.parameters = {{"weight", linear ? Shard(1) : Shard(0)}},
          .inputs = {linear ? Placement(Shard(-1)) : Replicate()},
          .outputs = {style.output},
          .heads = style.heads,
          .parts = style.parts,
          .scatter_dim = style.parts > 1 ? style.output->dim() : -1};
}

static ModuleLayouts resolved(const SequenceParallel& style, const std::string&, const Module&) {
  return {.inputs = {Shard(style.dim)}};
}

static ModuleLayouts resolved(const ExpertParallel&, const std::string& path,
                              const Module& module) {
  ModuleLayouts layouts;
  int64_t experts = -1;
  for (const auto& [name, parameter] : module.own_parameters()) {
    const Shape& shape = parameter->shape();
    if (shape.ndim() == 0 || (experts >= 0 && shape[0] != experts)) {
      fail("parallelize: parameter ", in_quotes(name), " of ", in_quotes(path), " is ", shape,
           ", expected one stacked by expert for ExpertParallel");
    }
    experts = shape[0];
    layouts.parameters.emplace_back(name, Shard(0));
  }
  if (experts < 0) {
    fail("parallelize: ", in_quotes(path),
         " has no parameters, expected those of experts for ExpertParallel");
  }
  return layouts;
}

static ModuleLayouts resolved(const PrepareInput& style, const std::string&, const Module&) {
  return {.inputs = style.inputs, .states_gradients = true};
}

static ModuleLayouts resolved(const PrepareOutput& style, const std::string&, const Module&) {
  return {.outputs = style.outputs};
}

static ModuleLayouts resolved(const Layouts& style, const std::string& path, const Module& module) {
  const auto& own = module.own_parameters();
  for (const auto& [name, placement] : style.parameters) {
    const auto found =
        std::ranges::find_if(own, [&](const auto& other) { return other.first == name; });
    if (found == own.end()) {
      fail("parallelize: parameter ", in_quotes(name), " of ", in_quotes(path), " does not exist");
    }
    const Shape& shape = found->second->shape();
    if (placement.is_partial() || placement.dim() >= shape.ndim()) {
      fail("parallelize: placement of parameter ", in_quotes(name), " ", shape, " of ",
           in_quotes(path), " is ", placement, ", expected Replicate or a dim that it has");
    }
  }
  return {.parameters = style.parameters,
          .inputs = style.inputs,
          .outputs = style.outputs,
          .states_gradients = true};
}

ModuleLayouts layouts_of(const Style& style, const std::string& path, const Module& module) {
  return std::visit([&](const auto& stated) { return resolved(stated, path, module); }, style);
}

std::vector<std::string> parts_of(const std::string& path) {
  return path | views::split('.') | ranges::to<std::vector<std::string>>();
}

bool is_number(const std::string& part) {
  return !part.empty() && part.find_first_not_of("0123456789") == part.npos;
}

static bool matches(std::string pattern, std::string path) {
  if (path.empty()) return pattern.empty();
  std::ranges::replace(pattern, '.', '/');
  std::ranges::replace(path, '.', '/');
  return fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME | FNM_NOESCAPE) == 0;
}

/// The least number of letters to insert, delete or replace (Levenshtein, 1966).
static size_t distance(const std::string& a, const std::string& b) {
  auto row = views::indices(b.size() + 1) | ranges::to<std::vector>();
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({exchanged, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

/// Replaces numbers by `*`, so that the layers of a model count as one.
static std::string general_path(const std::string& path) {
  const auto general = [](const std::string& part) { return is_number(part) ? "*" : part; };
  return listed(parts_of(path), general, ".");
}

static std::string close_paths(const NamedModules& modules, const std::string& pattern) {
  std::set<std::pair<size_t, std::string>> by_distance;
  for (const auto& [path, module] : modules) {
    if (path.empty()) continue;
    const std::string general = general_path(path);
    by_distance.emplace(distance(general_path(pattern), general), general);
  }
  if (by_distance.empty()) return "";
  const auto name = [](const auto& close) { return in_quotes(close.second); };
  return concat("; the closest are ", listed(by_distance | views::take(3), name));
}

NamedModules matching(const NamedModules& modules, const std::string& pattern) {
  const auto is_match = [&](const auto& named) { return matches(pattern, named.first); };
  auto found = modules | views::filter(is_match) | ranges::to<NamedModules>();
  if (found.empty()) {
    fail("parallelize: ", in_quotes(pattern), " matches no module, expected a path of one",
         close_paths(modules, pattern));
  }
  return found;
}

}  // namespace weft::tp

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
  const Colwise keys{.heads = c.kv_heads, .parts = parts, .shares_heads = c.kv_heads != c.heads};
  styles.push_back({at + ".k_proj", keys});
  styles.push_back({at + ".v_proj", keys});
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
  std::vector<std::string> norms;
  const auto block = transformer_block(c, c.layers - 1);  // the first one may lack a norm
  for (const auto& [name, child] : block->children()) {
    if (name.ends_with("layernorm")) norms.push_back("model.layers.*." + name);
  }
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
