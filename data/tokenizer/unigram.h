// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/double_array.h"
#include "data/tokenizer/word_model.h"

namespace weft::text {

/// Pieces of a unigram language model.
struct UnigramSpec {
  struct Piece {
    std::string text;
    int32_t id;
    double score;
    /// Taken whole wherever it occurs.
    bool user_defined = false;
  };
  /// Whose arithmetic decides between paths of nearly equal scores: SentencePiece 0.2.3 computes in
  /// single precision, the package tokenizers in double.
  enum class Arithmetic { sentencepiece, tokenizers };

  std::vector<Piece> pieces = {};
  int32_t unknown = 0;
  /// The ids of bytes, which stand for a character without a piece; -1 where there are none.
  std::array<int32_t, 256> bytes = {};
  Arithmetic arithmetic = Arithmetic::sentencepiece;
};

/// The most likely pieces of a text (Kudo 2018): the path of the largest sum of scores.
class Unigram final : public WordModel {
 public:
  explicit Unigram(const UnigramSpec& spec);

  void encode(std::string_view text, std::vector<int32_t>& ids) const override;

 private:
  /// The best path to a place: its score, its last piece and the bytes of that, 0 for no path.
  struct Step {
    double score = 0;
    int32_t id = -1;
    uint32_t bytes = 0;
  };
  class Path;
  static void keep_precision(std::span<Step> best);
  void offer(Step& to, int32_t id, double score, size_t bytes) const;
  size_t offer_pieces(std::string_view text, size_t character, Step* steps) const;

  DoubleArray trie_;
  /// The bytes of the longest piece or character.
  size_t longest_ = 4;
  /// By id; that of a piece of a user is what its length makes it.
  std::vector<double> scores_;
  int32_t unknown_;
  double unknown_score_ = 0;
  bool rounds_;
  std::array<int32_t, 256> bytes_;
};

}  // namespace weft::text
