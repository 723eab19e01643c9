// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/piece_decoder.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/word_model.h"

namespace weft::text {

/// The parts of a tokenizer, as its files describe them.
struct TextModel {
  /// By id: the token as the file has it; empty where an id has no token.
  std::vector<std::string> tokens = {};
  std::vector<bool> special = {};
  Vocabulary ids = {};
  /// Tokens found in the text itself, and in the normalized text.
  AddedTokens added = {}, added_normalized = {};
  Normalizer normalizer = {};
  Splitter splitter = {};
  std::unique_ptr<WordModel> words = {};
  /// Whether words are short, so that their ids are kept.
  bool caches = true;
  /// What is put around a text.
  std::vector<int32_t> before = {}, after = {};
  PieceTexts texts = {};
};

/// The largest id that is accepted: it bounds the memory of a file's tables.
inline constexpr int64_t kMostTokens = 8'000'000;

/// Adds a token; std::invalid_argument, which begins with `what`, when its id is out of bounds.
void set_token(const std::string& what, TextModel& model, const std::string& token, int64_t id);

/// Reads a tokenizer.json; `what` begins each error. std::invalid_argument when it is malformed or
/// asks for something that is not supported, which is named.
TextModel read_tokenizer_json(const std::string& what, const std::string& path);

/// Reads a model of SentencePiece. `added` is searched in the text before the model encodes it,
/// next to the model's control tokens.
TextModel read_sentencepiece(const std::string& what, const std::string& path,
                             const std::vector<AddedToken>& added);

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
