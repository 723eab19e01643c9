// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "data/tokenizer/double_array.h"
#include "data/tokenizer/replacements.h"

namespace weft::text {

/// How a model of SentencePiece normalizes text.
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
  /// How many characters at the start of the text are no spaces and stay as they are.
  size_t kept_bytes(std::string_view text) const;

  PieceNormalization rules_;
  /// Whether a byte is a character that stays as it is before another of ASCII.
  std::array<bool, 256> keeps_ = {};
};

}  // namespace weft::text
