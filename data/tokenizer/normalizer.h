// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/piece_normalizer.h"
#include "data/tokenizer/regex.h"

namespace weft::text {

/// One step of the normalization of text, by its name in tokenizer.json.
struct Normalization {
  enum class Kind {
    nfc,
    nfd,
    nfkc,
    nfkd,
    lowercase,
    /// Removes nonspacing marks, or all marks.
    strip_accents,
    strip_marks,
    prepend,
    replace,
    strip,
    clean_text,
    space_chinese,
    /// As SentencePiece does.
    pieces,
    /// By a table of SentencePiece, as the package tokenizers does.
    graphemes
  };
  Kind kind;
  /// The text that `prepend` adds, what `replace` looks for (unless `regex` is set) and what it
  /// writes.
  std::string pattern = {}, content = {};
  std::optional<Regex> regex = {};
  /// The sides that `strip` removes white space from.
  bool left = false, right = false;
  std::shared_ptr<const PieceNormalizer> pieces = {};
  std::shared_ptr<const Replacements> replacements = {};
};

/// The most bytes of a token's text, however its steps change it.
inline constexpr size_t kLongestText = size_t{1} << 16;

/// Normalizes text by steps in order.
class Normalizer {
 public:
  void add(Normalization step) { steps_.push_back(std::move(step)); }
  size_t steps() const { return steps_.size(); }
  /// The normalized text: `text` itself or what `scratch` holds afterwards. `text` is valid UTF-8.
  /// std::invalid_argument when replacements make it more than 64 times as long.
  std::string_view apply(std::string_view text, std::string& scratch) const;

 private:
  std::vector<Normalization> steps_;
};

}  // namespace weft::text
