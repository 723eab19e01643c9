// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "data/tokenizer/word_model.h"

namespace weft::text {

/// BERT's pieces: the longest piece of the vocabulary that begins the rest of the word, and so on;
/// pieces within a word begin with a prefix. A word without such pieces is the unknown token.
class WordPiece final : public WordModel {
 public:
  /// std::invalid_argument, which begins with `what`, when `unknown` is not in the vocabulary.
  WordPiece(const std::string& what, const Vocabulary& vocabulary, const std::string& unknown,
            const std::string& prefix, size_t most_characters);

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  Vocabulary starts_, rests_;
  int32_t unknown_;
  size_t most_characters_;
  size_t longest_ = 0;
};

}  // namespace weft::text
