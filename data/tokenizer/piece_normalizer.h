// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/double_array.h"

namespace weft::text {

/// The most bytes of a piece of a model and of a replacement; published ones have about 100.
inline constexpr size_t kLongestPiece = 1024;

/// SentencePiece's table of replacements, its "precompiled charsmap".
class Replacements {
 public:
  /// None.
  Replacements() = default;
  /// `table`: the size of a double array (Yata's darts-clone), the array, and the texts that its
  /// values point to, each with a zero byte at its end. std::invalid_argument, which begins with
  /// `what`, when it is damaged.
  Replacements(const std::string& what, std::string_view table);

  /// True when the character of ASCII stays as it is where the next is one of ASCII.
  bool keeps_ascii(unsigned char byte) const;

  struct Match {
    /// The replacement for the first `bytes` bytes.
    std::string_view text;
    size_t bytes;
  };
  /// The longest text of the table that `text` begins with, or the shortest one.
  std::optional<Match> match(std::string_view text, bool is_longest) const;

  /// The text as the package tokenizers normalizes it (crate spm_precompiled): a grapheme of fewer
  /// than 6 bytes whose start is in the table is replaced whole, by what the shortest such start
  /// gives; then each character of the others is.
  std::string applied_by_graphemes(std::string_view text) const;

 private:
  /// Goes along a byte from the children at `at` to those of the child; returns its unit, or 0.
  uint32_t child(size_t& at, unsigned char byte) const;
  uint32_t unit(size_t at) const { return at < units_.size() ? units_[at] : 0; }

  std::vector<uint32_t> units_ = {};
  std::string texts_ = {};
};

/// The normalization of text by a model of SentencePiece.
struct PieceNormalization {
  Replacements replacements = {};
  bool adds_space = true, removes_spaces = true, escapes_spaces = true, space_is_suffix = false;
  /// Texts that stay as they are.
  DoubleArray kept = {};
};

/// Normalizes text as SentencePiece does.
class PieceNormalizer {
 public:
  explicit PieceNormalizer(PieceNormalization rules);

  std::string apply(std::string_view text) const;

 private:
  Replacements::Match prefix_of(std::string_view text) const;
  /// The number of bytes at the start of the text that hold no spaces and stay as they are.
  size_t kept_bytes(std::string_view text) const;

  PieceNormalization rules_;
  /// True when a byte is a character that stays as it is before another of ASCII.
  std::array<bool, 256> keeps_ = {};
};

}  // namespace weft::text
