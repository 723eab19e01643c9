// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/extend/file.h"

namespace weft::rows {

/// The start of an index: the file `.idx` next to a token shard. After it come the number of the
/// first token of each document (int64), and, if `has_marks`, a bit for each token that says
/// whether it counts as a target, the lowest bit of a byte first.
struct IndexHeader {
  static constexpr int64_t kMagic = 0x3178646974666577;  // "weftidx1"
  int64_t magic = kMagic;
  int64_t tokens = 0, documents = 0, has_marks = 0;
  /// True when each document has separate rows, as lines of JSON do; text is one sequence.
  int64_t has_rows = 0;
  /// True when it is the last shard.
  int64_t is_last = 0;
  /// Hashes of the ids of the shard in blocks of kHashBlock bytes, and of what follows this header.
  uint64_t shard_hash = 0, rest_hash = 0;
};
inline constexpr size_t kHashBlock = size_t{1} << 20;

/// The path of the index of a shard.
std::string index_path(const std::string& shard);
/// Continues a hash with the bytes of a file from `offset` on.
uint64_t hash_of(const File& file, int64_t offset, uint64_t hash = 0);
/// True when the directory holds whole token files that write_token_files wrote.
bool are_whole(const std::string& directory);

/// The documents of token shards.
class TokenIndex {
 public:
  /// `counts` has the number of tokens of each shard. std::invalid_argument when a shard has an
  /// index and another one none, or when an index is damaged or of another shard.
  TokenIndex(std::span<const std::string> shards, std::span<const int64_t> counts);

  /// True when the shards have indices.
  bool exists() const { return !shards_.empty(); }
  bool has_rows() const { return has_rows_; }
  bool has_marks() const { return has_marks_; }
  /// All tokens count from here on.
  void count_all() { has_marks_ = false; }
  /// The first token of each document, ascending.
  const std::vector<int64_t>& starts() const { return starts_; }
  /// Replaces those of `targets`, which are the tokens from `from` on, that do not count by
  /// kIgnoredTarget.
  void ignore(int64_t from, std::span<int64_t> targets) const;

 private:
  struct Shard {
    int64_t start = 0, count = 0;
    /// Its file, and where the marks begin in it; none: all tokens count.
    std::optional<File> file;
    int64_t marks = 0;
  };
  void add(const std::string& path, int64_t start, int64_t count);

  std::vector<Shard> shards_;
  std::vector<int64_t> starts_;
  bool has_rows_ = false, has_marks_ = false;
};

}  // namespace weft::rows
