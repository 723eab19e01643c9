// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/byte_trie.h"

namespace weft::text {

/// The most bytes of a piece of a model and of a replacement; published ones have about 100.
inline constexpr size_t kLongestPiece = 1024;

/// How a model of SentencePiece normalizes text.
struct PieceNormalization {
  /// A table of replacements: the size of a double array (Yata's darts-clone), the array, and the
  /// texts that its values point to, each with a zero byte at its end. Empty: none.
  std::string replacements = {};
  bool adds_space = true, removes_spaces = true, escapes_spaces = true, space_is_suffix = false;
  /// Texts that stay as they are.
  ByteTrie kept = {};
};

/// Normalizes text as SentencePiece does.
class PieceNormalizer {
 public:
  /// std::invalid_argument, which begins with `what`, when the table is damaged.
  PieceNormalizer(const std::string& what, PieceNormalization rules);

  std::string apply(std::string_view text) const;

 private:
  struct Prefix {
    std::string_view text;
    size_t bytes;
  };
  /// The result for the start of `text`.
  Prefix prefix_of(std::string_view text) const;
  uint32_t unit(size_t at) const;

  PieceNormalization rules_;
  size_t units_ = 0;
  std::string_view texts_;
};

}  // namespace weft::text
