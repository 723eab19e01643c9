// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/saved_model.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "weft/error.h"

namespace weft {

void save_text(const std::string& key, const std::string& text,
               std::map<std::string, int64_t>& numbers) {
  for (size_t at = 0; at < text.size(); at += sizeof(int64_t)) {
    int64_t number = 0;
    std::memcpy(&number, text.data() + at, std::min(sizeof number, text.size() - at));
    numbers.emplace(concat(key, ':', at / sizeof number), number);
  }
}

std::string saved_text(const std::string& key, const std::map<std::string, int64_t>& numbers) {
  std::string text;
  for (int i = 0; numbers.contains(concat(key, ':', i)); ++i) {
    text.append(reinterpret_cast<const char*>(&numbers.at(concat(key, ':', i))), sizeof(int64_t));
  }
  text.resize(std::min(text.size(), text.find('\0')));
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~'; };
  return std::ranges::all_of(text, is_plain) ? text : in_quotes(text);
}

TransformerConfig saved_config(const std::map<std::string, int64_t>& numbers,
                               const std::string& checkpoint) {
  const auto number = [&](const std::string& name) {
    const auto found = numbers.find("config/" + name);
    if (found == numbers.end()) {
      fail("checkpoint: ", checkpoint, " has no ", name,
           " of the model, expected its config; import it again from a directory with its "
           "config.json");
    }
    return found->second;
  };
  const std::string choices = saved_text("config/config", numbers);
  if (!choices.empty()) {
    TransformerConfig config = transformer_config_of(choices, checkpoint);
    config.max_sequence = number("max_sequence");
    return config;
  }
  // Written before there were other families.
  return {.dim = number("dim"),
          .layers = number("layers"),
          .heads = number("heads"),
          .kv_heads = number("kv_heads"),
          .head_dim = number("head_dim"),
          .ffn = number("ffn"),
          .vocabulary = number("vocabulary"),
          .max_sequence = number("max_sequence"),
          .rope_theta = std::bit_cast<double>(number("rope_theta")),
          .norm_eps = std::bit_cast<double>(number("norm_eps")),
          .tied = number("tied") != 0};
}

}  // namespace weft
