// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
  void add(const AddedToken& token);

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
  /// A node of the tree of the tokens' bytes: its first child and its next sibling, 0 for none.
  struct Node {
    unsigned char byte;
    uint32_t child, sibling;
    int32_t token;
  };
  /// Finds the first token from `at` on; text before `from` is taken.
  bool find(std::string_view whole, size_t at, size_t from, Match& match) const;
  /// The number of the longest token at `at`, or -1.
  int32_t longest_at(std::string_view whole, size_t at) const;
  static bool is_whole_word(std::string_view whole, size_t begin, size_t end);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = {Node{0, 0, 0, -1}};
  /// Whether a token begins with the byte.
  std::array<bool, 256> starts_{};
};

}  // namespace weft::text
