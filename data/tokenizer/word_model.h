// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizer/double_array.h"

namespace weft::text {

struct PieceHash {
  using is_transparent = void;
  size_t operator()(std::string_view piece) const { return std::hash<std::string_view>()(piece); }
};

/// The ids of pieces.
using Vocabulary = std::unordered_map<std::string, int32_t, PieceHash, std::equal_to<>>;

/// Encodes one word after the other; a word does not depend on those around it. Several threads may
/// encode at once.
class WordModel {
 public:
  virtual ~WordModel() = default;
  /// Appends the ids of `word`, which is not empty.
  virtual void encode(std::string_view word, std::vector<int32_t>& ids) const = 0;
};

/// BERT's pieces: the longest piece of the vocabulary that begins the rest of the word, and so on;
/// pieces within a word begin with a prefix. A word without such pieces is the unknown token.
class WordPiece final : public WordModel {
 public:
  /// std::invalid_argument, which begins with `what`, when `unknown` is not in the vocabulary.
  WordPiece(const std::string& what, const Vocabulary& vocabulary, const std::string& unknown,
            const std::string& prefix, size_t most_characters);

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  /// The pieces that begin a word, and those within, without their prefix.
  DoubleArray starts_, rests_;
  int32_t unknown_;
  size_t most_characters_;
};

/// Parts of a byte-pair encoding as tokenizer.json has them.
struct BpeSpec {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  /// The rank of each merge. Empty: its place.
  std::vector<int32_t> ranks = {};
  /// True when pieces are bytes, not characters.
  bool by_bytes = false;
  /// True when a character without an id becomes tokens <0x00> to <0xFF> for its bytes.
  bool byte_fallback = false;
  std::optional<std::string> unknown;
  bool fuse_unknown = false;
  /// True when a word that is in the vocabulary is that token, whatever the merges make.
  bool ignore_merges = false;
  /// Pieces within a word begin with the prefix, pieces at its end end with the suffix. Both are
  /// empty where pieces are bytes.
  std::string prefix = {}, suffix = {};
};

/// The byte that a piece <0x00> to <0xFF> stands for, or -1 of another text.
int byte_of_piece(const std::string& piece);
/// The ids of those pieces by their bytes; -1 where there are none.
std::array<int32_t, 256> ids_of_bytes(const Vocabulary& vocabulary);

/// Byte-pair encoding: merges the adjacent pair of the lowest rank, the leftmost first, until no
/// pair has a rank (Sennrich, Haddow, Birch 2016).
class Bpe final : public WordModel {
 public:
  /// std::invalid_argument, which begins with `what`, when a merge has a part or a result that is
  /// not in the vocabulary.
  Bpe(const std::string& what, BpeSpec spec);

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  /// A merge: two ids become `result`; the lowest `rank` first.
  struct Merge {
    uint64_t pair = ~uint64_t{0};
    int32_t rank = 0, result = 0;
  };
  /// The place of a pair in the table: its merge, or where it would be.
  size_t slot_of(uint64_t pair) const;
  const Merge* find(int32_t left, int32_t right) const;
  /// Appends the ids of the characters or bytes.
  void start(std::string_view word, std::vector<int32_t>& ids) const;
  /// The id of a character with its prefix and suffix, or -1.
  int32_t id_of(std::string_view piece) const;
  /// Merges the ids from `from` on.
  void merge_few(std::vector<int32_t>& ids, size_t from) const;
  void merge_many(std::vector<int32_t>& ids, size_t from) const;

  bool has_affixes() const { return !spec_.prefix.empty() || !spec_.suffix.empty(); }

  /// The merges are left out, and so is the vocabulary unless it is searched.
  BpeSpec spec_;
  std::vector<Merge> merges_;
  std::array<int32_t, 256> bytes_ = ids_of_bytes({});
  std::unordered_map<char32_t, int32_t> characters_;
  int32_t unknown_ = -1;
};

/// True when a text can be cut before each "▁" that follows another character: "▁" has an id, every
/// other character becomes tokens, and no merge makes a piece that has a "▁" inside.
bool merges_keep_spaces_first(const BpeSpec& spec);
/// The words of a text that is cut so.
inline constexpr const char* kPiecesFromSpaces = "\u2581*[^\u2581]+|\u2581+";

/// Pieces of a unigram language model.
struct UnigramSpec {
  struct Piece {
    std::string text;
    int32_t id;
    double score;
    /// Taken whole wherever it occurs.
    bool user_defined = false;
  };
  /// The arithmetic that decides between paths of nearly equal scores: SentencePiece 0.2.3 computes
  /// in single precision, the package tokenizers in double.
  enum class Arithmetic { sentencepiece, tokenizers };

  std::vector<Piece> pieces = {};
  int32_t unknown = 0;
  /// The ids of bytes, which stand for a character without a piece; -1 where there are none.
  std::array<int32_t, 256> bytes = ids_of_bytes({});
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
  /// Indexed by id; that of a piece of a user is what its length makes it.
  std::vector<double> scores_;
  int32_t unknown_;
  double unknown_score_ = 0;
  bool rounds_;
  std::array<int32_t, 256> bytes_;
};

/// Keeps the ids of words that were encoded, in memory of a fixed limit: a full cache is emptied.
/// Used by one thread at a time.
class WordCache {
 public:
  WordCache();
  /// Appends the ids of `word` as the model encodes it.
  void encode(const WordModel& model, std::string_view word, std::vector<int32_t>& ids);

 private:
  struct Entry {
    uint64_t hash;
    uint32_t text, ids;
    uint16_t bytes, count;
  };

  std::vector<Entry> table_;
  std::string texts_;
  std::vector<int32_t> ids_;
  size_t words_ = 0;
};

}  // namespace weft::text
