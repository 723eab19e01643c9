// SPDX-License-Identifier: Apache-2.0
#include "nn/transformer_config.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/error.h"
#include "weft/extend/json.h"

namespace weft {

/// Models that are deeper or larger are taken for a mistake before they take memory and time.
static constexpr int64_t kMostLayers = 10'000;
static constexpr double kMostParameters = 1e15;

static double parameters_in(const TransformerConfig& config) {
  const auto dim = static_cast<double>(config.dim), heads = static_cast<double>(config.heads);
  const double width = heads * static_cast<double>(config.head_dim);
  const double shared = width * static_cast<double>(config.kv_heads) / heads;
  const double block = dim * (2 * width + 2 * shared + 3 * static_cast<double>(config.ffn) + 2);
  const double ends = dim * (static_cast<double>(config.vocabulary) * (config.tied ? 1 : 2) + 1);
  return static_cast<double>(config.layers) * block + ends;
}

std::string mistake_in(const TransformerConfig& config) {
  const std::pair<const char*, int64_t> sizes[] = {{"dim", config.dim},
                                                   {"layers", config.layers},
                                                   {"heads", config.heads},
                                                   {"kv heads", config.kv_heads},
                                                   {"head dim", config.head_dim},
                                                   {"ffn", config.ffn},
                                                   {"vocabulary", config.vocabulary},
                                                   {"longest sequence", config.max_sequence}};
  for (const auto& [name, size] : sizes) {
    if (size > 0 && size <= std::numeric_limits<int32_t>::max()) continue;
    return concat(name, " is ", size, ", expected 1 to 2147483647");
  }
  if (config.layers > kMostLayers) {
    return concat("layers is ", config.layers, ", expected 1 to ", kMostLayers);
  }
  if (const double count = parameters_in(config); count > kMostParameters) {
    return concat("number of parameters is ", count, ", expected at most ", kMostParameters);
  }
  if (config.heads % config.kv_heads != 0) {
    return concat("heads is ", config.heads, ", expected a multiple of ", config.kv_heads,
                  ", the kv heads");
  }
  if (config.head_dim % 2 != 0) {
    return concat("head dim is ", config.head_dim, ", expected an even number");
  }
  if (!(config.rope_theta > 0) || !std::isfinite(config.rope_theta)) {
    return concat("rope theta is ", config.rope_theta, ", expected a finite number above 0");
  }
  if (!(config.norm_eps >= 0)) return concat("norm eps must be at least 0, got ", config.norm_eps);
  if (!(config.deviation >= 0)) {
    return concat("deviation of the initial values must be at least 0, got ", config.deviation);
  }
  return "";
}

namespace {

/// A Hugging Face config.json; the type of every value is checked.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& path)
      : path_(path), json_(nlohmann::json::parse(read_json(kWhat, path, kMostBytes))) {}

  int64_t integer(const char* key) const {
    const nlohmann::json* value = find(key);
    if (!value) mistake("the key \"", key, "\" is missing");
    return integer(key, *value);
  }
  int64_t integer(const char* key, int64_t otherwise) const {
    const nlohmann::json* value = find(key);
    return value ? integer(key, *value) : otherwise;
  }
  double number(const char* key, double otherwise) const {
    return number_in(json_, key, otherwise);
  }
  bool flag(const char* key, bool otherwise) const {
    const nlohmann::json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_boolean()) wrong_type(key, *value, "true or false");
    return value->get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    return text_in(json_, key, otherwise);
  }
  /// Returns std::nullopt when the key is missing or null.
  std::optional<nlohmann::json> object(const char* key) const {
    const nlohmann::json* value = find(key);
    if (!value) return {};
    if (!value->is_object()) wrong_type(key, *value, "an object");
    return *value;
  }

  double number_in(const nlohmann::json& object, const char* key, double otherwise) const {
    const nlohmann::json* value = find_in(object, key);
    if (!value) return otherwise;
    if (!value->is_number()) wrong_type(key, *value, "a number");
    return value->get<double>();
  }
  std::string text_in(const nlohmann::json& object, const char* key,
                      const std::string& otherwise) const {
    const nlohmann::json* value = find_in(object, key);
    if (!value) return otherwise;
    if (!value->is_string()) wrong_type(key, *value, "a string");
    return value->get<std::string>();
  }
  /// Throws that `key` is unsupported unless `is_supported`.
  void expect(const char* key, bool is_supported, const std::string& supported) const {
    if (!is_supported) mistake("\"", key, "\" is unsupported unless it is ", supported);
  }
  template <class... Parts>
  [[noreturn]] void mistake(const Parts&... parts) const {
    fail(kWhat, ": ", path_, ": ", parts...);
  }

 private:
  static constexpr const char* kWhat = "llama config";
  static constexpr int64_t kMostBytes = int64_t{1} << 20;

  static const nlohmann::json* find_in(const nlohmann::json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  const nlohmann::json* find(const char* key) const { return find_in(json_, key); }

  int64_t integer(const char* key, const nlohmann::json& value) const {
    if (!value.is_number_integer()) wrong_type(key, value, "an integer");
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max())) {
      mistake("\"", key, "\" is ", value.get<uint64_t>(), ", which is too large");
    }
    return value.get<int64_t>();
  }
  [[noreturn]] void wrong_type(const char* key, const nlohmann::json& value,
                               const char* wanted) const {
    mistake("\"", key, "\" is ", value.is_number_float() ? "a fraction" : value.type_name(),
            ", not ", wanted);
  }

  std::string path_;
  nlohmann::json json_;
};

}  // namespace

/// Returns rope's base, from "rope_parameters" (transformers 5) or from the key next to
/// "rope_scaling".
static double rope_theta_in(const ConfigFile& file) {
  const double beside = file.number("rope_theta", 10000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = file.object(key);
    if (!rope) continue;
    const std::string type =
        file.text_in(*rope, "rope_type", file.text_in(*rope, "type", "default"));
    file.expect(key, type == "default", concat("of type \"default\", not ", in_quotes(type)));
    return file.number_in(*rope, "rope_theta", beside);
  }
  return beside;
}

static void check_supported(const ConfigFile& file) {
  const std::string type = file.text("model_type", "llama");
  file.expect("model_type", type == "llama", concat("\"llama\", not ", in_quotes(type)));
  const std::string activation = file.text("hidden_act", "silu");
  file.expect("hidden_act", activation == "silu", concat("\"silu\", not ", in_quotes(activation)));
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    file.expect(key, !file.flag(key, false), "false");
  }
  const double dropout = file.number("attention_dropout", 0);
  file.expect("attention_dropout", dropout == 0, concat("0, not ", dropout));
  file.expect("quantization_config", !file.object("quantization_config"), "null");
}

static TransformerConfig config_in(const std::string& path) {
  const ConfigFile file(path);
  check_supported(file);
  TransformerConfig config;
  config.dim = file.integer("hidden_size");
  config.layers = file.integer("num_hidden_layers");
  config.heads = file.integer("num_attention_heads");
  config.kv_heads = file.integer("num_key_value_heads", config.heads);
  config.ffn = file.integer("intermediate_size");
  config.vocabulary = file.integer("vocab_size");
  config.max_sequence = file.integer("max_position_embeddings", config.max_sequence);
  config.rope_theta = rope_theta_in(file);
  config.norm_eps = file.number("rms_norm_eps", 1e-6);
  config.tied = file.flag("tie_word_embeddings", false);
  config.deviation = file.number("initializer_range", config.deviation);
  config.head_dim = file.integer("head_dim", 0);
  if (config.head_dim == 0 && config.heads > 0) {
    if (config.dim % config.heads != 0) {
      file.mistake("hidden_size ", config.dim, " is no multiple of ", config.heads,
                   " heads, and there is no \"head_dim\"");
    }
    config.head_dim = config.dim / config.heads;
  }
  if (const std::string mistake = mistake_in(config); !mistake.empty()) file.mistake(mistake);
  return config;
}

TransformerConfig transformer_config(const std::string& source) {
  namespace fs = std::filesystem;
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary
  if (source == "tiny") return {256, 4, 4, 2, 64, 704, 256};
  if (source == "small") return {512, 8, 8, 4, 64, 1408, 4096};
  std::error_code ignored;
  if (fs::is_directory(source, ignored))
    return config_in((fs::path(source) / "config.json").string());
  if (!fs::exists(source, ignored)) {
    fail("llama config: ", in_quotes(source), " does not exist, expected tiny, small or a file");
  }
  return config_in(source);
}

}  // namespace weft
