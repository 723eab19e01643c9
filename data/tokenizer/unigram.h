// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/word_model.h"

namespace weft::text {

/// Pieces of a unigram language model as SentencePiece has them.
struct UnigramSpec {
  struct Piece {
    std::string text;
    int32_t id;
    float score;
    /// Taken whole wherever it occurs.
    bool user_defined;
  };
  std::vector<Piece> pieces;
  int32_t unknown = 0;
  /// The ids of bytes, which stand for a character without a piece; -1 where there are none.
  std::array<int32_t, 256> bytes;
};

/// The most likely pieces of a text (Kudo 2018): the path of the largest sum of scores.
class Unigram final : public WordModel {
 public:
  explicit Unigram(const UnigramSpec& spec);

  void encode(std::string_view text, std::vector<int32_t>& ids) const override;

 private:
  /// The best path to a place: its last piece, its score and where that piece begins.
  struct Step {
    int32_t id = -1;
    float score = 0;
    size_t begin = SIZE_MAX;
  };
  void extend(std::string_view text, size_t begin, size_t character, std::vector<Step>& best) const;
  void append_unknown(std::string_view piece, bool after_unknown, std::vector<int32_t>& ids) const;

  ByteTrie trie_;
  std::vector<float> scores_;
  std::vector<bool> user_defined_;
  int32_t unknown_;
  float unknown_score_ = 0, largest_score_ = 0;
  std::array<int32_t, 256> bytes_;
};

}  // namespace weft::text
