// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/double_array.h"

namespace weft::text {

/// A token that is found in the text itself, before the text is cut into words.
struct AddedToken {
  int32_t id = 0;
  std::string content = {};
  /// Left out of decoded text on demand.
  bool special = false;
  /// Searched in the normalized text instead of the text itself.
  bool normalized = false;
  /// Found as a whole word only.
  bool single_word = false;
  /// Whether it takes in the white space on its left or right.
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
    /// With the white space that it takes in; the search goes on at `next`.
    size_t begin, end, next;
    int32_t id;
  };
  /// Finds the first token from `at` on; text before `from` is taken.
  bool find(std::string_view whole, size_t at, size_t from, Match& match) const;
  static bool is_whole_word(std::string_view whole, size_t begin, size_t end);

  std::vector<AddedToken> tokens_;
  /// The numbers of the tokens.
  DoubleArray tree_;
  /// Whether a token begins with the byte.
  std::array<bool, 256> starts_{};
};

}  // namespace weft::text
