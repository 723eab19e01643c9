// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weft/error.h"
#include "weft/transformer_config.h"

namespace weft {

/// A Hugging Face config.json, or an object in it. The type of every value is checked, and the keys
/// that are asked for are remembered: the others are not understood.
class ConfigFile {
 public:
  ConfigFile(std::string name, nlohmann::json json)
      : name_(std::move(name)), json_(std::move(json)) {}

  /// A key that is missing or null.
  bool lacks(const std::string& key) const { return find(key) == nullptr; }
  bool is_null(const std::string& key) const {
    return json_.contains(key) && json_.at(key).is_null();
  }
  int64_t integer(const std::string& key, int64_t otherwise) const;
  double number(const std::string& key, double otherwise) const {
    return get(key, otherwise, &nlohmann::json::is_number, "a number");
  }
  bool flag(const std::string& key, bool otherwise) const {
    return get(key, otherwise, &nlohmann::json::is_boolean, "true or false");
  }
  std::string text(const std::string& key, const std::string& otherwise) const {
    return get(key, otherwise, &nlohmann::json::is_string, "a string");
  }
  /// Returns an empty list when the key is missing or null.
  nlohmann::json list(const std::string& key) const {
    return get(key, nlohmann::json::array(), &nlohmann::json::is_array, "a list");
  }
  std::vector<double> numbers(const std::string& key) const;
  /// Returns std::nullopt when the key is missing or null.
  std::optional<ConfigFile> object(const std::string& key) const;
  const std::string& name() const { return name_; }
  const nlohmann::json& json() const { return json_; }

  /// Throws unless the key is missing or null, or has this value.
  void expect(const std::string& key, const nlohmann::json& value) const;
  /// Throws when a key with a value was not asked for and is not in `harmless`.
  void check_all_understood(const std::set<std::string>& harmless) const;
  template <class... Parts> [[noreturn]] void mistake(const Parts&... parts) const {
    fail(name_, ": ", parts...);
  }

 private:
  const nlohmann::json* find(const std::string& key) const;
  template <class T>
  T get(const std::string& key, const T& otherwise, bool (nlohmann::json::*is_wanted)() const,
        const char* wanted) const {
    const nlohmann::json* value = find(key);
    if (!value) return otherwise;
    if (!(value->*is_wanted)()) wrong_type(key, *value, wanted);
    return value->get<T>();
  }
  [[noreturn]] void wrong_type(const std::string& key, const nlohmann::json& value,
                               const char* wanted) const;

  std::string name_;
  nlohmann::json json_;
  mutable std::set<std::string> asked_;
};

/// The field that a key of config.json sets.
using ConfigField = std::variant<int64_t TransformerConfig::*, double TransformerConfig::*,
                                 bool TransformerConfig::*, Activation TransformerConfig::*>;

struct ConfigKey {
  /// required: it must exist; or_none: null means 0.
  enum class Need : uint8_t { optional, required, or_none };
  std::string name;
  ConfigField field;
  Need need = Need::optional;
};

/// The name in a file of a module or a parameter. Those in blocks are relative to the block.
/// Several modules with one name in the file are stacked there.
struct FileName {
  std::string_view ours, file;
  /// rows: as they are; columns: rows and columns are swapped; heads: the rows of each head of all
  /// stacked modules are together; experts: one tensor for each expert, whose number stands for
  /// `*`.
  enum class Form : uint8_t { rows, columns, heads, experts };
  Form form = Form::rows;
};

/// Everything that weft knows of a "model_type": the keys of its config, their meaning and defaults
/// (those of transformers), and the names in its files.
struct Family {
  std::string_view type, architecture;
  TransformerConfig defaults;
  std::vector<ConfigKey> keys;
  /// Keys that must be missing or have this value.
  std::vector<std::pair<std::string, nlohmann::json>> fixed = {};
  /// True when layer i has the window, unless "layer_types" says it; nullptr: all have it, and
  /// there is no such key.
  bool (*is_windowed)(const ConfigFile& file, int64_t layer) = nullptr;
  /// No layer has the window unless "use_sliding_window" is true.
  bool has_window_switch = false;
  /// The row of "pad_token_id" in the table of embeddings has no gradient.
  bool has_padding = true;
  /// Sets and writes what no single key says.
  void (*complete)(const ConfigFile& file, TransformerConfig& config) = nullptr;
  void (*write)(const TransformerConfig& config, nlohmann::ordered_json& json) = nullptr;

  /// The prefix of names, unless the file holds the bare model.
  std::string_view base = "model.";
  /// The prefix of names in blocks.
  std::string_view blocks = "model.layers.";
  std::vector<FileName> names = {};
};

/// The name of `value`: the first that is not an alias.
template <class T>
std::string name_in(const std::map<std::string, T>& names, T value, std::string_view preferred) {
  std::string found;
  for (const auto& [name, other] : names) {
    if (other == value && (found.empty() || name == preferred)) found = name;
  }
  return found;
}

template <class T>
T value_in(const std::map<std::string, T>& names, const ConfigFile& file, const std::string& key,
           const std::string& name) {
  const auto found = names.find(name);
  if (found != names.end()) return found->second;
  file.mistake("\"", key, "\" is ", in_quotes(name), ", expected one of ",
               listed(names, [](const auto& other) { return other.first; }));
}

/// Reads "rope_parameters" (transformers 5) or "rope_scaling", of all layers or by their type.
void read_rope(const ConfigFile& file, TransformerConfig& config);
/// The object "rope_scaling".
nlohmann::ordered_json written_scaling(const TransformerConfig& config);

/// Models that are deeper are taken for a mistake before they take memory and time.
inline constexpr int64_t kMostLayers = 10'000;

/// std::invalid_argument "<what>: ..." unless these numbers make a transformer.
void check_config(const std::string& what, const TransformerConfig& config);

const std::vector<Family>& all_known_families();
/// Returns nullptr when there is none of that type.
const Family* find_family(const std::string& type);

}  // namespace weft

namespace weft::families {

// Keys and names that the tables of several families list.

using C = TransformerConfig;
using Keys = std::vector<ConfigKey>;
using Names = std::vector<FileName>;
inline constexpr auto kRequired = ConfigKey::Need::required;
inline constexpr auto kOrNone = ConfigKey::Need::or_none;
inline constexpr auto kColumns = FileName::Form::columns;
inline constexpr auto kHeads = FileName::Form::heads;
inline constexpr auto kExperts = FileName::Form::experts;

template <class T>
std::vector<T> with(std::vector<T> list, const std::type_identity_t<std::vector<T>>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}
/// Keys that all families but GPT-2 have.
Keys sizes();
/// Keys of Llama and of the families that follow it, whose norms' epsilon has the name `eps`.
Keys llama_like(const char* eps = "rms_norm_eps");
Keys attention_bias();
ConfigKey mlp_bias();
ConfigKey window();

/// Queries, keys and values under one name.
Names qkv(std::string_view file, FileName::Form form = FileName::Form::rows);
Names fused(std::string_view qkv_file, std::string_view gate_up);

/// The families that follow Llama, and those with layer norms and plain feed-forwards.
std::vector<Family> llamas();
std::vector<Family> plain();

}  // namespace weft::families
