// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"

namespace weft::text {

/// The contents of the files next to a tokenizer.
struct TokenizerConfig {
  std::string bos = {}, eos = {};
  /// Whether a tokenizer.model is used with them around each text.
  bool adds_bos = false, adds_eos = false;
  /// Tokens that a tokenizer.model does not have.
  std::vector<AddedToken> added = {};
  /// The ids that end a generated text.
  std::vector<int64_t> ends = {};
  /// The Jinja text of the chat template.
  std::string chat_template = {};
};

/// Reads tokenizer_config.json, special_tokens_map.json, generation_config.json and
/// chat_template.jinja, as far as they exist. std::invalid_argument names a file that is malformed.
TokenizerConfig read_tokenizer_config(const std::string& directory);

}  // namespace weft::text
