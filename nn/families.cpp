// SPDX-License-Identifier: Apache-2.0
#include "nn/families.h"

#include <limits>
#include <map>

#include "weft/transformer.h"

namespace weft {

namespace families {

Keys sizes() {
  return {{"hidden_size", &C::dim, kRequired},
          {"num_hidden_layers", &C::layers, kRequired},
          {"num_attention_heads", &C::heads, kRequired},
          {"intermediate_size", &C::ffn, kRequired},
          {"vocab_size", &C::vocabulary, kRequired},
          {"max_position_embeddings", &C::max_sequence},
          {"tie_word_embeddings", &C::tied},
          {"initializer_range", &C::deviation}};
}

Keys llama_like(const char* eps) {
  return with(sizes(), {{"num_key_value_heads", &C::kv_heads, kOrNone},
                        {"head_dim", &C::head_dim, kOrNone},
                        {"hidden_act", &C::activation},
                        {eps, &C::norm_eps},
                        {"rope_theta", &C::rope_theta},
                        {"attention_dropout", &C::attention_dropout, kOrNone}});
}

Keys attention_bias() {
  return {{"attention_bias", &C::qkv_bias}, {"attention_bias", &C::output_bias}};
}

ConfigKey mlp_bias() { return {"mlp_bias", &C::mlp_bias}; }
ConfigKey window() { return {"sliding_window", &C::window, kOrNone}; }

Names qkv(std::string_view file, FileName::Form form) {
  return {{"self_attn.q_proj", file, form},
          {"self_attn.k_proj", file, form},
          {"self_attn.v_proj", file, form}};
}

Names fused(std::string_view qkv_file, std::string_view gate_up) {
  return with(qkv(qkv_file), {{"mlp.gate_proj", gate_up}, {"mlp.up_proj", gate_up}});
}

}  // namespace families

const std::vector<Family>& all_known_families() {
  static const std::vector<Family> all = families::with(families::llamas(), families::plain());
  return all;
}

const Family* find_family(const std::string& type) {
  for (const Family& family : all_known_families()) {
    if (family.type == type) return &family;
  }
  return nullptr;
}

const nlohmann::json* ConfigFile::find(const std::string& key) const {
  asked_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigFile::wrong_type(const std::string& key, const nlohmann::json& value,
                            const char* wanted) const {
  mistake("\"", key, "\" is ", value.is_number_float() ? "a fraction" : value.type_name(), ", not ",
          wanted);
}

int64_t ConfigFile::integer(const std::string& key, int64_t otherwise) const {
  const nlohmann::json* value = find(key);
  if (!value) return otherwise;
  if (!value->is_number_integer()) wrong_type(key, *value, "an integer");
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max())) {
    mistake("\"", key, "\" is ", value->get<uint64_t>(), ", which is too large");
  }
  return value->get<int64_t>();
}

std::vector<double> ConfigFile::numbers(const std::string& key) const {
  std::vector<double> numbers;
  for (const nlohmann::json& value : list(key)) {
    if (!value.is_number()) wrong_type(key, value, "a list of numbers");
    numbers.push_back(value.get<double>());
  }
  return numbers;
}

std::optional<ConfigFile> ConfigFile::object(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (!value) return {};
  if (!value->is_object()) wrong_type(key, *value, "an object");
  return ConfigFile(concat(name_, ": \"", key, "\""), *value);
}

void ConfigFile::expect(const std::string& key, const nlohmann::json& expected) const {
  const nlohmann::json* value = find(key);
  if (!value || *value == expected) return;
  mistake("\"", key, "\" is unsupported unless it is ", expected.dump(), ", not ",
          printable(value->dump()));
}

void ConfigFile::check_all_understood(const std::set<std::string>& harmless) const {
  for (const auto& [key, value] : json_.items()) {
    const bool is_empty = value.is_structured() && value.empty();
    if (value.is_null() || is_empty || asked_.contains(key) || harmless.contains(key)) continue;
    mistake("the key ", in_quotes(key),
            " is not understood, expected none that may change results");
  }
}

namespace {

/// A parameter's name, cut into the names of its block, of its module in there, and its own.
struct CutName {
  explicit CutName(const std::string& name) {
    static constexpr std::string_view kBlocks = "model.layers.";
    const size_t dot = name.rfind('.');
    if (dot == name.npos) {
      leaf = name;
      return;
    }
    module = name.substr(0, dot);
    leaf = name.substr(dot);
    if (!name.starts_with(kBlocks)) return;
    const size_t end = name.find('.', kBlocks.size());
    block = name.substr(kBlocks.size(), end - kBlocks.size());
    module = module.size() > end ? module.substr(end + 1) : "";
  }
  /// The number of the block; empty outside of blocks.
  std::string block, module, leaf;
};

struct FoundName {
  std::string name;
  FileName::Form form;
};

}  // namespace

/// Returns the names of a parameter in the family's files.
static std::vector<FoundName> names_in(const Family& family, const std::string& parameter) {
  const CutName cut(parameter);
  const std::string before = cut.block.empty() ? "" : concat(family.blocks, cut.block, '.');
  std::vector<FoundName> found;
  for (const FileName& rule : family.names) {
    const bool is_module = rule.ours == cut.module;
    if (!is_module && rule.ours != cut.module + cut.leaf) continue;
    found.push_back({concat(before, rule.file, is_module ? cut.leaf : ""), rule.form});
  }
  if (found.empty()) {
    found.push_back({concat(before, cut.module, cut.leaf), FileName::Form::rows});
  }
  return found;
}

/// Lays the parts of a tensor out: one after another, or interleaved by head.
static void place(std::vector<FilePart>& parts, bool by_heads, int64_t head_dim) {
  int64_t offset = 0;
  const auto count = static_cast<int64_t>(parts.size());
  for (FilePart& part : parts) {
    part.offset = offset;
    part.block = by_heads ? head_dim : part.rows;
    part.stride = by_heads ? head_dim * count : part.rows;
    offset += part.block;
  }
}

/// Adds the names of norms' parameters in old files of BERT.
static void add_old_names(std::vector<std::string>& names) {
  static constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {{"weight", "gamma"},
                                                                               {"bias", "beta"}};
  const std::vector<std::string> known = names;
  for (const std::string& name : known) {
    for (const auto& [leaf, old] : kRenamed) {
      if (!name.ends_with(concat("LayerNorm.", leaf))) continue;
      names.push_back(concat(name.substr(0, name.size() - leaf.size()), old));
    }
  }
}

/// One tensor for each slice of a parameter that is stacked by expert.
static void add_slices(const std::string& parameter, const std::string& pattern, int64_t experts,
                       std::vector<FileTensor>& tensors) {
  const size_t star = pattern.find('*');
  for (int64_t i = 0; i < experts; ++i) {
    const std::string name = concat(pattern.substr(0, star), i, pattern.substr(star + 1));
    tensors.push_back({.names = {name}, .parts = {{.parameter = parameter, .slice = i}}});
  }
}

/// The names and shapes of parameters and buffers.
static std::vector<std::pair<std::vector<std::string>, Shape>> contents_of(
    const TransformerConfig& config) {
  const TransformerModel model(config);
  std::vector<std::pair<std::vector<std::string>, Shape>> contents;
  for (const NamedParameter& named : model.named_parameters()) {
    contents.emplace_back(named.names, named.parameter->shape());
  }
  for (const NamedBuffer& buffer : model.named_buffers()) {
    if (buffer.persistent) contents.emplace_back(std::vector{buffer.name}, buffer.value.shape());
  }
  return contents;
}

std::vector<FileTensor> file_tensors(const TransformerConfig& config) {
  const Family* family = find_family(config.family);
  if (!family) fail("model: family is ", in_quotes(config.family), ", expected a known one");
  std::vector<FileTensor> tensors, slices;
  std::map<std::string, size_t> places;
  std::vector<bool> by_heads;
  for (const auto& [ours, shape] : contents_of(config)) {
    std::vector<FoundName> found;
    for (const std::string& name : ours) {
      for (FoundName& in_file : names_in(*family, name)) found.push_back(std::move(in_file));
    }
    if (found[0].form == FileName::Form::experts) {
      add_slices(ours[0], found[0].name, shape[0], slices);
      continue;
    }
    const auto [at, is_new] = places.try_emplace(found[0].name, tensors.size());
    if (is_new) {
      const bool is_matrix = shape.ndim() > 1;
      const bool transposed = is_matrix && found[0].form == FileName::Form::columns;
      tensors.push_back({.names = {}, .transposed = transposed, .parts = {}});
      by_heads.push_back(found[0].form == FileName::Form::heads);
      for (const FoundName& in_file : found) tensors.back().names.push_back(in_file.name);
    }
    tensors[at->second].parts.push_back({ours[0], shape[0]});
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    place(tensors[i].parts, by_heads[i], config.head_dim);
  }
  tensors.insert(tensors.end(), slices.begin(), slices.end());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (config.family == "bert") add_old_names(tensors[i].names);
    // Files of the bare model lack the prefix.
    const std::vector<std::string> names = tensors[i].names;
    for (const std::string& name : names) {
      if (!name.starts_with(family->base)) continue;
      tensors[i].names.push_back(name.substr(family->base.size()));
    }
  }
  return tensors;
}

bool predicts_further_tokens(const TransformerConfig& config, const std::string& name) {
  if (config.family != "deepseek_v3") return false;
  const std::string block = CutName(name).block;
  const bool is_number = !block.empty() && block.find_first_not_of("0123456789") == block.npos;
  return is_number && block.size() < 10 && std::stoll(block) >= config.layers;
}

bool is_left_out(const TransformerConfig& config, const std::string& name) {
  if (predicts_further_tokens(config, name)) return true;
  // Constants that old files hold: frequencies, masks, positions.
  static const std::vector<std::pair<std::string_view, std::string_view>> kConstants = {
      {"gpt2", ".attn.bias"},
      {"gpt2", ".attn.masked_bias"},
      {"gpt_neox", ".attention.bias"},
      {"gpt_neox", ".attention.masked_bias"},
      {"bert", "embeddings.position_ids"}};
  for (const auto& [family, end] : kConstants) {
    if (config.family == family && name.ends_with(end)) return true;
  }
  if (config.rotary_fraction > 0 && name.ends_with(".rotary_emb.inv_freq")) return true;
  if (config.family != "bert") return false;
  const bool has_pooler = config.head == Head::pooler;
  const bool has_head = config.head == Head::transform;
  return name.starts_with("cls.seq_relationship.") ||
         (!has_pooler && name.starts_with("bert.pooler.")) ||
         (!has_head && name.starts_with("cls.predictions."));
}

}  // namespace weft
