// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::text {

/// The texts of tokens, from which decoded text is put together.
struct PieceTexts {
  /// How bytes that are not UTF-8 are decoded.
  enum class Broken {
    /// Each longest prefix of a code point is one U+FFFD.
    prefix,
    /// Each byte is one U+FFFD.
    byte,
    /// Each byte of the run of byte tokens that holds them is one U+FFFD.
    run
  };

  /// By id: the text of a token after others, and of the first token of a text (empty: the same).
  std::vector<std::string> following = {}, first = {};
  /// By id: whether the text is one byte that stands for itself. Empty: every token is bytes.
  std::vector<bool> is_byte = {};
  Broken broken = Broken::prefix;
  /// Spaces removed from the start of the text.
  int64_t spaces_removed = 0;
  /// The token whose spaces stay at the start of the text.
  int64_t unstripped = -1;
};

/// Makes text from tokens one at a time; text whose last character is incomplete is held back.
class PieceDecoder {
 public:
  /// `texts` outlives the decoder. `streams`: whether the characters of a run of byte tokens are
  /// returned before the run ends.
  PieceDecoder(const PieceTexts& texts, bool streams) : texts_(&texts), streams_(streams) {}

  /// Appends the text that the token completes to `to`.
  void push(int64_t id, std::string& to);
  /// Appends what is held back.
  void finish(std::string& to);

 private:
  void append(std::string_view text, std::string& to);
  /// Appends what the held bytes are so far, or all of them at the end.
  void flush(bool is_end, std::string& to);

  const PieceTexts* texts_;
  bool streams_;
  bool is_first_ = true;
  int64_t removed_ = 0;
  std::string held_;
};

}  // namespace weft::text
