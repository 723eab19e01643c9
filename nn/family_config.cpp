// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>

#include "nn/families.h"
#include "weft/extend/file.h"

namespace weft {

static constexpr const char* kWhat = "model config";
static constexpr int64_t kMostBytes = int64_t{1} << 20;

/// Keys that change no result: tokens, dtypes, and settings of transformers' own code.
static constexpr const char* kHarmless = R"(
    _attn_implementation_autoset _flash_attn_2_enabled _name_or_path architectures
    attn_implementation aux_loss_alpha auto_map begin_suppress_tokens bos_token_id
    cache_implementation chunk_size_feed_forward classifier_dropout classifier_pooling
    cls_token_id compile decoder_start_token_id deterministic_flash_attn directionality dtype
    eos_token_id ep_size exponential_decay_length_penalty finetuning_task forced_bos_token_id
    forced_eos_token_id gradient_checkpointing id2label initializer_cutoff_factor
    is_llama_config label2id mask_token_id model_type n_ctx num_labels num_mtp_layers
    num_nextn_predict_layers output_attentions output_hidden_states output_router_logits
    pad_token_id pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type prefix pretraining_tp problem_type qk_head_dim
    reference_compile remove_invalid_values reorder_and_upcast_attn repad_logits_with_grad
    return_dict rms_norm_eps sep_token_id seq_aux sparse_pred_ignore_index sparse_prediction
    suppress_tokens summary_activation summary_first_dropout summary_proj_to_labels summary_type
    summary_use_proj task_specific_params tf_legacy_loss tokenizer_class torch_dtype torchscript
    transformers_version use_bfloat16 use_cache)";

static std::set<std::string> words_in(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

static const std::map<std::string, Activation> kActivations = {
    {"silu", Activation::silu},          {"swish", Activation::silu},
    {"gelu", Activation::gelu},          {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_new", Activation::gelu_tanh}, {"gelu_fast", Activation::gelu_tanh},
    {"relu", Activation::relu}};

static const std::map<std::string, RopeScalingKind> kScalings = {
    {"default", RopeScalingKind::none},    {"linear", RopeScalingKind::linear},
    {"dynamic", RopeScalingKind::dynamic}, {"llama3", RopeScalingKind::llama3},
    {"yarn", RopeScalingKind::yarn},       {"longrope", RopeScalingKind::longrope},
    {"su", RopeScalingKind::longrope}};

/// The name of `value`: the first that is not an alias.
template <class T>
static std::string name_in(const std::map<std::string, T>& names, T value,
                           std::string_view preferred) {
  std::string found;
  for (const auto& [name, other] : names) {
    if (other == value && (found.empty() || name == preferred)) found = name;
  }
  return found;
}

template <class T>
static T value_in(const std::map<std::string, T>& names, const ConfigFile& file,
                  const std::string& key, const std::string& name) {
  const auto found = names.find(name);
  if (found != names.end()) return found->second;
  file.mistake("\"", key, "\" is ", in_quotes(name), ", expected one of ",
               listed(names, [](const auto& other) { return other.first; }));
}

static void read_key(const ConfigFile& file, const ConfigKey& key, TransformerConfig& config) {
  if (key.need == ConfigKey::Need::required && file.lacks(key.name)) {
    file.mistake("the key \"", key.name, "\" is missing");
  }
  const bool is_none = key.need == ConfigKey::Need::or_none && file.is_null(key.name);
  std::visit(
      [&]<class T>(T TransformerConfig::*field) {
        T& value = config.*field;
        if constexpr (std::is_same_v<T, int64_t>) {
          value = file.integer(key.name, is_none ? 0 : value);
        } else if constexpr (std::is_same_v<T, double>) {
          value = file.number(key.name, is_none ? 0 : value);
        } else if constexpr (std::is_same_v<T, bool>) {
          value = file.flag(key.name, value);
        } else if (const std::string name = file.text(key.name, ""); !name.empty()) {
          value = value_in(kActivations, file, key.name, name);
        }
      },
      key.field);
}

static void read_scaling(const ConfigFile& rope, TransformerConfig& config) {
  RopeScaling& s = config.rope_scaling;
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  s.kind = value_in(kScalings, rope, "rope_type", type);
  // transformers reads Phi-3's first files, which say "yarn", so.
  if (config.family == "phi3" && s.kind == RopeScalingKind::yarn)
    s.kind = RopeScalingKind::longrope;
  config.rope_theta = rope.number("rope_theta", config.rope_theta);
  config.rotary_fraction = rope.number("partial_rotary_factor", config.rotary_fraction);
  const int64_t original = s.original_max > 0 ? s.original_max : config.max_sequence;
  s.original_max = rope.integer("original_max_position_embeddings", original);
  // There, the key outside of the scaling wins, even by its default.
  if (config.family == "phi3") s.original_max = original;
  const bool by_ratio = s.kind == RopeScalingKind::yarn || s.kind == RopeScalingKind::longrope;
  if (s.kind != RopeScalingKind::none && !by_ratio && rope.lacks("factor")) {
    rope.mistake("the key \"factor\" is missing");
  }
  const double ratio = static_cast<double>(config.max_sequence) /
                       static_cast<double>(std::max<int64_t>(1, s.original_max));
  s.factor = rope.number("factor", by_ratio ? ratio : 1);
  s.attention_factor = rope.number("attention_factor", 0);
  if (s.kind == RopeScalingKind::llama3) {
    s.low_frequency = rope.number("low_freq_factor", s.low_frequency);
    s.high_frequency = rope.number("high_freq_factor", s.high_frequency);
  }
  if (s.kind == RopeScalingKind::yarn) {
    s.beta_fast = rope.number("beta_fast", s.beta_fast);
    s.beta_slow = rope.number("beta_slow", s.beta_slow);
    s.truncate = rope.flag("truncate", true);
    s.mscale = rope.number("mscale", 0), s.mscale_all_dim = rope.number("mscale_all_dim", 0);
  }
  s.short_factor = rope.numbers("short_factor"), s.long_factor = rope.numbers("long_factor");
  rope.check_all_understood({});
  if (s.kind == RopeScalingKind::none) s = {};
  if (s.kind != RopeScalingKind::dynamic) return;
  s.original_max = config.max_sequence;  // as in transformers; longer sequences are the purpose
  config.max_sequence = static_cast<int64_t>(static_cast<double>(s.original_max) * s.factor);
}

/// Reads "rope_parameters" (transformers 5) or "rope_scaling", of all layers or by their type.
static void read_rope(const ConfigFile& file, TransformerConfig& config) {
  int64_t& original_max = config.rope_scaling.original_max;
  original_max = file.integer("original_max_position_embeddings", original_max);
  auto rope = file.object("rope_scaling");
  if (const auto parameters = file.object("rope_parameters"); !rope) rope = parameters;
  if (!rope) {
    config.rope_scaling = {};
    return;
  }
  const auto full = rope->object("full_attention"), local = rope->object("sliding_attention");
  if (!full && !local) {
    if (config.family == "modernbert" && !rope->json().empty()) {
      rope->mistake("scaling is that of all layers, expected \"full_attention\" and ",
                    "\"sliding_attention\"");
    }
    return read_scaling(*rope, config);
  }
  if (local) {
    local->expect("rope_type", "default");
    config.local_rope_theta = local->number("rope_theta", config.local_rope_theta);
    local->check_all_understood({});
  }
  if (full) read_scaling(*full, config);
  rope->check_all_understood({});
}

static void read_layers(const ConfigFile& file, const Family& family, TransformerConfig& config) {
  if (!family.is_windowed) return;
  const nlohmann::json types = file.list("layer_types");
  for (int64_t i = 0; i < config.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    if (!types.empty() && at >= types.size()) {
      file.mistake("\"layer_types\" has ", types.size(), " entries, expected ", config.layers);
    }
    const bool by_rule = family.is_windowed(file, i);
    const bool windowed = types.empty() ? by_rule : types[at] == "sliding_attention";
    if (!types.empty() && !windowed && types[at] != "full_attention") {
      file.mistake("\"layer_types\" has ", printable(types[at].dump()),
                   ", expected \"full_attention\" or \"sliding_attention\"");
    }
    config.windowed.push_back(windowed);
  }
  const bool has_any = config.window > 0 && std::ranges::count(config.windowed, true) > 0;
  if (!has_any) config.window = 0, config.windowed.clear();
}

static void complete_heads(const ConfigFile& file, TransformerConfig& config) {
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_dim != 0 || config.heads <= 0) return;
  if (config.dim % config.heads != 0) {
    file.mistake("hidden_size ", config.dim, " is no multiple of ", config.heads,
                 " heads, and there is no \"head_dim\"");
  }
  config.head_dim = config.dim / config.heads;
}

static const Family& family_in(const ConfigFile& file) {
  const std::string type = file.text("model_type", "llama");
  if (const Family* family = find_family(type)) return *family;
  file.mistake("\"model_type\" is ", in_quotes(type), ", expected one of ",
               listed(transformer_families()));
}

static TransformerConfig config_in(const ConfigFile& file) {
  const Family& family = family_in(file);
  TransformerConfig config = family.defaults;
  config.family = family.type;
  for (const ConfigKey& key : family.keys) read_key(file, key, config);
  for (const auto& [key, value] : family.fixed) file.expect(key, value);
  file.expect("is_encoder_decoder", false);
  complete_heads(file, config);
  if (config.rotary_fraction > 0) read_rope(file, config);
  if (config.layers > 0 && config.layers <= kMostLayers) {
    if (family.has_window_switch && !file.flag("use_sliding_window", false)) config.window = 0;
    if (family.complete) family.complete(file, config);
    read_layers(file, family, config);
  }
  if (const auto quantization = file.object("quantization_config")) {
    quantization->expect("quant_method", "fp8");
    quantization->expect("fmt", "e4m3");
    quantization->expect("weight_block_size", {128, 128});
    if (quantization->lacks("quant_method")) {
      file.mistake("\"quantization_config\" is unsupported unless its \"quant_method\" is \"fp8\"");
    }
  }
  static const std::set<std::string> harmless = words_in(kHarmless);
  file.check_all_understood(harmless);
  check_config(file.name(), config);
  return config;
}

TransformerConfig transformer_config_of(const std::string& json, const std::string& name) {
  check_json(kWhat, name, json);
  return config_in({concat(kWhat, ": ", name), nlohmann::json::parse(json)});
}

TransformerConfig transformer_config(const std::string& source) {
  namespace fs = std::filesystem;
  // dim, layers, heads, kv_heads, head_dim, ffn, vocabulary
  if (source == "tiny") return {256, 4, 4, 2, 64, 704, 256};
  if (source == "small") return {512, 8, 8, 4, 64, 1408, 4096};
  std::error_code ignored;
  if (!fs::exists(source, ignored)) {
    fail(kWhat, ": ", in_quotes(source), " does not exist, expected tiny, small or a file");
  }
  const bool is_directory = fs::is_directory(source, ignored);
  const std::string path = is_directory ? (fs::path(source) / "config.json").string() : source;
  return transformer_config_of(read_json(kWhat, path, kMostBytes), path);
}

std::vector<std::string> transformer_families() {
  std::vector<std::string> names;
  for (const Family& family : all_known_families()) names.emplace_back(family.type);
  std::ranges::sort(names);
  return names;
}

using Json = nlohmann::ordered_json;

static Json written(const TransformerConfig& config, const ConfigKey& key) {
  return std::visit(
      [&]<class T>(T TransformerConfig::*field) -> Json {
        const T value = config.*field;
        if constexpr (std::is_same_v<T, Activation>) {
          return name_in(kActivations, value,
                         key.name == "activation_function" ? "gelu_new" : "gelu_pytorch_tanh");
        } else {
          if (key.need == ConfigKey::Need::or_none && value == T{}) return nullptr;
          return value;
        }
      },
      key.field);
}

static Json written(const TransformerConfig& config, const RopeScaling& s) {
  using Kind = RopeScalingKind;
  Json json{{"rope_type", name_in(kScalings, s.kind, "longrope")}};
  json["factor"] = s.factor;
  if (s.kind != Kind::linear && s.kind != Kind::dynamic) {
    json["original_max_position_embeddings"] = s.original_max;
  }
  if (s.attention_factor > 0) json["attention_factor"] = s.attention_factor;
  if (s.kind == Kind::llama3) {
    json["low_freq_factor"] = s.low_frequency, json["high_freq_factor"] = s.high_frequency;
  }
  if (s.kind == Kind::yarn) {
    json["beta_fast"] = s.beta_fast, json["beta_slow"] = s.beta_slow;
    json["truncate"] = s.truncate;
    if (s.mscale > 0) json["mscale"] = s.mscale;
    if (s.mscale_all_dim > 0) json["mscale_all_dim"] = s.mscale_all_dim;
  }
  if (s.kind == Kind::longrope) {
    json["short_factor"] = s.short_factor, json["long_factor"] = s.long_factor;
  }
  if (config.family == "phi3") json.erase("original_max_position_embeddings");
  return json;
}

static Json layer_types_of(const TransformerConfig& config) {
  Json types = Json::array();
  for (int64_t i = 0; i < config.layers; ++i) {
    types.push_back(config.has_window(i) ? "sliding_attention" : "full_attention");
  }
  return types;
}

/// A model whose attention has other sinks than its family would be written as a different one.
static void check_sinks(const TransformerConfig& config, const Family& family) {
  const ConfigField sinks = &TransformerConfig::sinks;
  const bool has_key = std::ranges::count(family.keys, sinks, &ConfigKey::field) > 0;
  if (has_key || config.sinks == family.defaults.sinks) return;
  fail(kWhat, ": sinks is ", config.sinks, ", expected ", family.defaults.sinks,
       ", because the config.json of ", family.type, " has no key for it");
}

std::string config_json(const TransformerConfig& config, const std::string& dtype) {
  const Family* family = find_family(config.family);
  if (!family) fail(kWhat, ": family is ", in_quotes(config.family), ", expected a known one");
  check_sinks(config, *family);
  // transformers' default of the padding may be no id of the vocabulary.
  Json json{{"architectures", {family->architecture}},
            {"model_type", family->type},
            {"pad_token_id", nullptr}};
  for (const ConfigKey& key : family->keys) {
    if (!json.contains(key.name)) json[key.name] = written(config, key);
  }
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind != RopeScalingKind::none) {
    json["rope_scaling"] = written(config, scaling);
    if (config.family == "phi3") json["original_max_position_embeddings"] = scaling.original_max;
    if (scaling.kind == RopeScalingKind::dynamic) {
      json["max_position_embeddings"] = scaling.original_max;
    }
  }
  if (family->is_windowed) {
    json["layer_types"] = layer_types_of(config);
    if (config.window == 0) json.erase("sliding_window");
  }
  if (family->has_window_switch) json["use_sliding_window"] = config.window > 0;
  if (family->write) family->write(config, json);
  if (!dtype.empty()) json["torch_dtype"] = dtype;
  return json.dump(2) + "\n";
}

}  // namespace weft
