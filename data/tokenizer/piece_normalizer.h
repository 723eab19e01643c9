// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  explicit PieceNormalizer(PieceNormalization rules) : rules_(std::move(rules)) {}

  std::string apply(std::string_view text) const;

 private:
  Replacements::Match prefix_of(std::string_view text) const;

  PieceNormalization rules_;
};

}  // namespace weft::text
