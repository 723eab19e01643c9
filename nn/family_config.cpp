// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>

#include "nn/families.h"
#include "weft/extend/file.h"
#include "weft/ops/embedding.h"

namespace weft {

static constexpr const char* kWhat = "model config";
static constexpr int64_t kMostBytes = int64_t{1} << 20;

/// Keys that change no result: tokens, dtypes, and settings of transformers' own code, of its
/// generation and of other programs.
static constexpr const char* kHarmless = R"(
    _commit_hash bad_words_ids diversity_penalty do_sample early_stopping
    encoder_no_repeat_ngram_size length_penalty max_length max_new_tokens min_length
    no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores
    repetition_penalty return_dict_in_generate temperature top_k top_p typical_p
    transformers.js_config unsloth_fixed unsloth_version
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

/// Keys that no code of a family reads unless its table lists them, with the value that code
/// elsewhere takes as their default.
static const std::vector<std::pair<const char*, nlohmann::json>> kDefaults = {
    {"add_cross_attention", false},
    {"attention_bias", false},
    {"attention_dropout", 0.0},
    {"attn_pdrop", 0.0},
    {"embd_pdrop", 0.0},
    {"embedding_dropout", 0.0},
    {"embedding_multiplier", 1.0},
    {"full_attn_mod", 1},
    {"hidden_dropout", 0.0},
    {"interpolate_factor", 1},
    {"is_decoder", false},
    {"is_encoder_decoder", false},
    {"lm_head_bias", false},
    {"logits_scaling", 1.0},
    {"mlp_bias", false},
    {"mlp_dropout", 0.0},
    {"qk_layernorm", false},
    {"qkv_bias", false},
    {"resid_pdrop", 0.0},
    {"residual_dropout", 0.0},
    {"residual_multiplier", 1.0},
    {"rope_interleaved", false},
    {"scale_attn_by_inverse_layer_idx", false},
    {"tie_encoder_decoder", false},
    {"use_bidirectional_attention", false},
    {"use_mrope", false},
    {"use_qkv_bias", false},
    {"use_sliding_window", false}};

static std::set<std::string> words_in(const char* text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

static const std::map<std::string, Activation> kActivations = {
    {"silu", Activation::silu},          {"swish", Activation::silu},
    {"gelu", Activation::gelu},          {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_new", Activation::gelu_tanh}, {"gelu_fast", Activation::gelu_tanh},
    {"relu", Activation::relu}};

/// True when 0 in a config would be read as a key that is missing: sizes, and some numbers.
static bool is_positive(const ConfigField& field) {
  using C = TransformerConfig;
  static const std::vector<ConfigField> numbers = {&C::attention_scale, &C::attention_softcap,
                                                   &C::logit_softcap, &C::local_rope_theta,
                                                   &C::rotary_fraction};
  const bool is_size = std::holds_alternative<int64_t C::*>(field);
  return is_size ? field != ConfigField(&C::shared_ffn) : std::ranges::count(numbers, field) > 0;
}

static void read_key(const ConfigFile& file, const ConfigKey& key, TransformerConfig& config) {
  if (key.need == ConfigKey::Need::required && file.lacks(key.name)) {
    file.mistake("the key \"", key.name, "\" is missing");
  }
  const bool is_none = key.need == ConfigKey::Need::or_none && file.is_null(key.name);
  const bool is_choice = std::holds_alternative<Activation TransformerConfig::*>(key.field);
  if (file.is_null(key.name) && !is_none && !is_choice) {
    file.mistake("\"", key.name, "\" is null, expected a value, or the key missing");
  }
  // Configs without a window state 0 as its width.
  const bool is_off = key.field == ConfigField(&TransformerConfig::window) &&
                      find_family(config.family)->has_window_switch &&
                      !file.flag("use_sliding_window", false);
  if (is_positive(key.field) && !is_off && !file.lacks(key.name) && file.number(key.name, 1) <= 0) {
    file.mistake("\"", key.name, "\" must be above 0, got ", file.number(key.name, 1));
  }
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

/// The flags of "layer_types": whether each layer has the window.
static std::vector<bool> listed_windows(const ConfigFile& file, const TransformerConfig& config) {
  const nlohmann::json types = file.list("layer_types");
  if (types.size() != static_cast<size_t>(config.layers)) {
    file.mistake("\"layer_types\" has ", types.size(), " entries, expected ", config.layers);
  }
  std::vector<bool> windows;
  for (const nlohmann::json& type : types) {
    windows.push_back(type == "sliding_attention");
    if (windows.back() || type == "full_attention") continue;
    file.mistake("\"layer_types\" has ", printable(type.dump()),
                 ", expected \"full_attention\" or \"sliding_attention\"");
  }
  return windows;
}

static void read_layers(const ConfigFile& file, const Family& family, TransformerConfig& config) {
  const bool is_listed = !file.lacks("layer_types");
  std::vector<bool> windows, by_rule;
  if (is_listed) windows = listed_windows(file, config);
  if (!family.is_windowed) {
    if (std::ranges::count(windows, config.window == 0) == 0) return;
    file.mistake("\"layer_types\" differ from the layers of ", family.type, ", expected all \"",
                 config.window == 0 ? "full" : "sliding", "_attention\"");
  }
  for (int64_t i = 0; i < config.layers; ++i) by_rule.push_back(family.is_windowed(file, i));
  config.windowed = is_listed ? windows : by_rule;
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

/// Reads the token whose row of the table has no gradient, in families whose code has such a row.
static void read_padding(const ConfigFile& file, const Family& family, TransformerConfig& config) {
  constexpr const char* key = "pad_token_id";
  const bool is_missing = !file.is_null(key) && file.lacks(key);
  // The default of a family may be no row of a small table.
  if (!is_missing || config.padding >= config.vocabulary) config.padding = {};
  if (!family.has_padding || file.lacks(key)) return;
  config.padding = padding_row(concat(file.name(), ": \"", key, '"').c_str(), file.integer(key, 0),
                               config.vocabulary);
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
  for (const auto& [key, value] : kDefaults) {
    const bool is_own = std::ranges::count(family.keys, key, &ConfigKey::name) > 0 ||
                        (family.has_window_switch && key == std::string("use_sliding_window"));
    if (!is_own) file.expect(key, value);
  }
  read_padding(file, family, config);
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
          const bool is_or_none = key.need == ConfigKey::Need::or_none;
          if (is_or_none && is_positive(key.field) && value == T{}) return nullptr;
          return value;
        }
      },
      key.field);
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
  Json json{{"architectures", {family->architecture}},
            {"model_type", family->type},
            {"pad_token_id", nullptr}};
  if (config.padding) json["pad_token_id"] = *config.padding;
  for (const ConfigKey& key : family->keys) {
    if (!json.contains(key.name)) json[key.name] = written(config, key);
  }
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind != RopeScalingKind::none) {
    json["rope_scaling"] = written_scaling(config);
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
