// SPDX-License-Identifier: Apache-2.0
#include "nn/families.h"

#include <limits>

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

Keys llama_like() {
  return with(sizes(), {{"num_key_value_heads", &C::kv_heads, kOrNone},
                        {"head_dim", &C::head_dim, kOrNone},
                        {"hidden_act", &C::activation},
                        {"rms_norm_eps", &C::norm_eps},
                        {"rope_theta", &C::rope_theta},
                        {"attention_dropout", &C::attention_dropout}});
}

Keys attention_bias() {
  return {{"attention_bias", &C::qkv_bias}, {"attention_bias", &C::output_bias}};
}

ConfigKey mlp_bias() { return {"mlp_bias", &C::mlp_bias}; }
ConfigKey window() { return {"sliding_window", &C::window, kOrNone}; }

C llama_defaults() { return {.norm_eps = 1e-6}; }

Names qkv(std::string_view file, FileName::Form form) {
  return {{"self_attn.q_proj", file, form},
          {"self_attn.k_proj", file, form},
          {"self_attn.v_proj", file, form}};
}

Names fused(std::string_view qkv_file, std::string_view gate_up) {
  return with(qkv(qkv_file), {{"mlp.gate_proj", gate_up}, {"mlp.up_proj", gate_up}});
}

}  // namespace families

static std::vector<Family> all_families() {
  std::vector<Family> all = families::llamas();
  for (const auto& more :
       {families::gemmas(), families::gpts(), families::encoders(), families::sparse()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

const std::vector<Family>& all_known_families() {
  static const std::vector<Family> all = all_families();
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

}  // namespace weft
