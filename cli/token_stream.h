// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft::cli {

/// The tokens of files, one after the other, as one sequence. Text is bytes (ids 0 to 255), and a
/// file that does not end with a newline gets one before the next; `.bin` files are token shards in
/// llm.c's form (256 int32: 20240520, 1, count and then uint16 ids; or 20240801, 7, count and
/// uint32 ids). Large files are mapped and must not be shortened meanwhile. Several threads may
/// read at once.
class TokenStream {
 public:
  /// `paths` are files or directories: of those every file below, sorted by path; names that start
  /// with a dot, empty files and links to directories are passed over. std::invalid_argument naming
  /// the path when one is missing, empty or malformed, when text and shards are mixed, and at the
  /// first token that is not below `vocabulary` (the shards are read through once for it).
  TokenStream(std::span<const std::string> paths, int64_t vocabulary);

  /// Number of tokens.
  int64_t size() const { return size_; }
  /// Number of files they come from.
  int64_t files() const { return files_; }
  /// "1000 tokens of 3 files, with hash 1f2e...": of a thousand places in them.
  std::string in_words() const;
  /// Tokens [from, from + into.size()), which must be there.
  void copy(int64_t from, std::span<int64_t> into) const;

 private:
  /// `count` tokens of `width` bytes each.
  struct Part {
    std::string path;
    std::shared_ptr<const std::byte> data;
    int64_t count = 0;
    int width = 1;
    int64_t start = 0;
  };
  void add_text(const std::string& path);
  void add_shard(const std::string& path);
  void add(Part part);

  std::vector<Part> parts_;
  int64_t size_ = 0;
  int64_t files_ = 0;
};

}  // namespace weft::cli
