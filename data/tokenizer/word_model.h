// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weft::text {

struct PieceHash {
  using is_transparent = void;
  size_t operator()(std::string_view piece) const { return std::hash<std::string_view>()(piece); }
};

/// The ids of pieces.
using Vocabulary = std::unordered_map<std::string, int32_t, PieceHash, std::equal_to<>>;

/// The id of the unknown token; std::invalid_argument, which begins with `what`, when it is not in
/// the vocabulary.
int32_t unknown_id(const std::string& what, const Vocabulary& vocabulary, const std::string& token);

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
  Vocabulary starts_, rests_;
  int32_t unknown_;
  size_t most_characters_;
  size_t longest_ = 0;
};

/// Keeps the ids of words that were encoded, in memory of a fixed limit: a full cache is emptied.
/// For one thread at a time.
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
  void clear();

  std::vector<Entry> table_;
  std::string texts_;
  std::vector<int32_t> ids_;
  size_t words_ = 0;
};

}  // namespace weft::text
