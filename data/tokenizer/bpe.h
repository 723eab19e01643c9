// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizer/word_model.h"

namespace weft::text {

/// Parts of a byte-pair encoding as tokenizer.json has them.
struct BpeSpec {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  /// The rank of each merge. Empty: its place.
  std::vector<int32_t> ranks = {};
  /// Whether pieces are bytes, not characters.
  bool by_bytes = false;
  /// Whether a character without an id becomes tokens <0x00> to <0xFF> for its bytes.
  bool byte_fallback = false;
  std::optional<std::string> unknown;
  bool fuse_unknown = false;
  /// Whether a word that is in the vocabulary is that token, whatever the merges make.
  bool ignore_merges = false;
};

/// The token that stands for a byte of a missing character.
std::string byte_piece(int byte);
/// The byte of such a piece, or -1 of another text.
int byte_of_piece(const std::string& piece);
/// The ids of those pieces by their bytes; -1 where there are none.
std::array<int32_t, 256> ids_of_bytes(const Vocabulary& vocabulary);

/// Byte-pair encoding: merges the adjacent pair of the lowest rank, the leftmost first, until no
/// pair has a rank (Sennrich, Haddow, Birch 2016).
class Bpe final : public WordModel {
 public:
  /// std::invalid_argument, which begins with `what`, when a merge has a part or a result that is
  /// not in the vocabulary.
  Bpe(const std::string& what, const BpeSpec& spec);

  void encode(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  /// A merge: two ids become `result`; the lowest `rank` first.
  struct Merge {
    uint64_t pair = ~uint64_t{0};
    int32_t rank = 0, result = 0;
  };
  struct Part;
  void add_merge(const std::string& what, const BpeSpec& spec, size_t at);
  void add_bytes(const std::string& what, const BpeSpec& spec);
  const Merge* find(int32_t left, int32_t right) const;
  /// Appends the ids of the characters or bytes.
  void start(std::string_view word, std::vector<int32_t>& ids) const;
  /// Merges the ids from `from` on.
  void merge_few(std::vector<int32_t>& ids, size_t from) const;
  void merge_many(std::vector<int32_t>& ids, size_t from) const;

  std::vector<Merge> merges_;
  std::array<int32_t, 256> bytes_{};
  std::unordered_map<char32_t, int32_t> characters_;
  Vocabulary whole_words_;
  int32_t unknown_ = -1;
  bool by_bytes_, fuse_unknown_, byte_fallback_, ignore_merges_;
};

/// Whether a text can be cut before each "▁" that follows another character: "▁" has an id, every
/// other character becomes tokens, and no merge makes a piece that has a "▁" inside.
bool merges_keep_spaces_first(const BpeSpec& spec);
/// The words of a text that is cut so.
inline constexpr const char* kPiecesFromSpaces = "\u2581*[^\u2581]+|\u2581+";

}  // namespace weft::text
