// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "nn/families.h"

namespace weft {

static const std::map<std::string, RopeScalingKind> kScalings = {
    {"default", RopeScalingKind::none},    {"linear", RopeScalingKind::linear},
    {"dynamic", RopeScalingKind::dynamic}, {"llama3", RopeScalingKind::llama3},
    {"yarn", RopeScalingKind::yarn},       {"longrope", RopeScalingKind::longrope},
    {"su", RopeScalingKind::longrope}};

static constexpr const char* kFraction = "partial_rotary_factor";

/// True when the code of the family reads the part of a head that rotates, under any name. That of
/// others rotates whole heads, and fails with scaled frequencies of a part.
static bool reads_fraction(const TransformerConfig& config) {
  const ConfigField fraction = &TransformerConfig::rotary_fraction;
  return std::ranges::count(find_family(config.family)->keys, fraction, &ConfigKey::field) > 0;
}

static void check_no_fraction(const ConfigFile& file, const TransformerConfig& config) {
  const bool is_scaled = config.rope_scaling.kind != RopeScalingKind::none;
  if (file.number(kFraction, 1) != 1 && is_scaled) file.expect(kFraction, 1);
}

static void read_scaling(const ConfigFile& rope, TransformerConfig& config) {
  RopeScaling& s = config.rope_scaling;
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  s.kind = value_in(kScalings, rope, "rope_type", type);
  // transformers reads Phi-3's first files, which say "yarn", so.
  if (config.family == "phi3" && s.kind == RopeScalingKind::yarn)
    s.kind = RopeScalingKind::longrope;
  config.rope_theta = rope.number("rope_theta", config.rope_theta);
  if (reads_fraction(config)) {
    config.rotary_fraction = rope.number(kFraction, config.rotary_fraction);
  } else {
    check_no_fraction(rope, config);
  }
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
  if (s.attention_factor <= 0 && !rope.lacks("attention_factor")) {
    rope.mistake("\"attention_factor\" must be above 0, got ", s.attention_factor);
  }
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

static void read_all_scaling(const ConfigFile& file, TransformerConfig& config) {
  int64_t& original_max = config.rope_scaling.original_max;
  original_max = file.integer("original_max_position_embeddings", original_max);
  auto rope = file.object("rope_scaling");
  const auto parameters = file.object("rope_parameters");
  const bool is_old = rope && !rope->json().empty();
  if (!is_old) rope = parameters;
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
  // There it is always that of the layers without a window.
  if (config.family == "gemma3_text" && is_old) {
    rope->mistake("scaling is nested by the types of layers, expected it in \"rope_parameters\"");
  }
  if (local) {
    local->expect("rope_type", "default");
    config.local_rope_theta = local->number("rope_theta", config.local_rope_theta);
    local->check_all_understood({});
  }
  if (full) read_scaling(*full, config);
  rope->check_all_understood({});
}

void read_rope(const ConfigFile& file, TransformerConfig& config) {
  read_all_scaling(file, config);
  // GPT-NeoX has other names for both; later files state them under these as well.
  const auto& keys = find_family(config.family)->keys;
  if (std::ranges::count(keys, "rope_theta", &ConfigKey::name) == 0) {
    file.expect("rope_theta", config.rope_theta);
  }
  if (reads_fraction(config)) return file.expect(kFraction, config.rotary_fraction);
  check_no_fraction(file, config);
}

nlohmann::ordered_json written_scaling(const TransformerConfig& config) {
  const RopeScaling& s = config.rope_scaling;
  using Kind = RopeScalingKind;
  nlohmann::ordered_json json{{"rope_type", name_in(kScalings, s.kind, "longrope")}};
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

}  // namespace weft
