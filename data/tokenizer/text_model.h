// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/double_array.h"
#include "data/tokenizer/text_steps.h"
#include "data/tokenizer/word_model.h"

namespace weft::text {

/// A token that is found in the text itself, before the text is cut into words.
struct AddedToken {
  int32_t id = 0;
  std::string content = {};
  /// Left out of decoded text on demand.
  bool special = false;
  /// Found as a whole word only.
  bool single_word = false;
  /// True when it takes in the white space on its left or right.
  bool left = false, right = false;
};

/// Finds added tokens in text: the leftmost, and of those that begin at one place the longest.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// If two tokens have equal texts, the last one is found. A token with an empty text never is.
  explicit AddedTokens(std::vector<AddedToken> tokens);

  /// Calls `text(part)` and `token(id)` in the order of the text.
  template <class Text, class Token>
  void for_parts(std::string_view whole, const Text& text, const Token& token) const {
    size_t from = 0;
    Match match{};
    for (size_t at = 0; find(whole, at, from, match); at = match.next) {
      if (from < match.begin) text(whole.substr(from, match.begin - from));
      token(match.id);
      from = match.end;
    }
    if (from < whole.size()) text(whole.substr(from));
  }

 private:
  struct Match {
    /// Includes the white space that it takes in; the search goes on at `next`.
    size_t begin, end, next;
    int32_t id;
  };
  /// Finds the first token from `at` on; text before `from` is taken.
  bool find(std::string_view whole, size_t at, size_t from, Match& match) const;

  std::vector<AddedToken> tokens_;
  /// The numbers of the tokens.
  DoubleArray tree_;
};

/// The texts of tokens, from which decoded text is put together.
struct PieceTexts {
  /// The decoding of bytes that are not UTF-8.
  enum class Broken {
    /// Each longest prefix of a code point is one U+FFFD.
    prefix,
    /// Each byte is one U+FFFD.
    byte,
    /// Each byte of the run of byte tokens that holds them is one U+FFFD.
    run
  };

  /// Indexed by id: the text of a token after others, and of a first token (empty: the same).
  std::vector<std::string> following = {}, first = {};
  /// Indexed by id: the text of the last token of a text. Empty: that of any other.
  std::vector<std::string> last = {};
  /// Indexed by id: true when the text is one byte that means itself. Empty: every token is bytes.
  std::vector<bool> is_byte = {};
  /// Changes the text of a run of byte tokens, which may begin the text. Null: nothing is changed.
  std::function<void(std::string& text, bool is_first)> changes_run = {};
  Broken broken = Broken::prefix;
  /// Spaces removed from the start of the text.
  int64_t spaces_removed = 0;
  /// The token whose spaces stay at the start of the text.
  int64_t unstripped = -1;
};

/// The parts of a tokenizer, as its files describe them.
struct TextModel {
  /// Indexed by id: the token as the file has it; empty where an id has no token.
  std::vector<std::string> tokens = {};
  std::vector<bool> special = {};
  Vocabulary ids = {};
  /// Tokens found in the text itself, and in the normalized text.
  AddedTokens added = {}, added_normalized = {};
  Normalizer normalizer = {};
  Splitter splitter = {};
  std::unique_ptr<WordModel> words = {};
  /// True when words are short, so that their ids are kept.
  bool caches = true;
  /// The tokens around a text.
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
  /// The tokens that have names, such as bos_token, and their texts.
  std::vector<std::pair<std::string, std::string>> named = {};
  /// The text of a named token; empty when the files have none.
  std::string token(std::string_view name) const;
  /// True when a tokenizer.model is used with them around each text.
  bool adds_bos = false, adds_eos = false;
  /// Tokens that a tokenizer.model does not have.
  std::vector<AddedToken> added = {};
  /// The ids that end a generated text.
  std::vector<int64_t> ends = {};
  /// The names and Jinja texts of the chat templates; one alone has the name "default".
  std::vector<std::pair<std::string, std::string>> chat_templates = {};
};

/// Reads tokenizer_config.json, special_tokens_map.json, generation_config.json or else
/// config.json, and chat templates, as far as they exist. std::invalid_argument names a file that
/// is malformed.
TokenizerConfig read_tokenizer_config(const std::string& directory);

}  // namespace weft::text
