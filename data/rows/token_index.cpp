// SPDX-License-Identifier: Apache-2.0
#include "data/rows/token_index.h"

#include <algorithm>
#include <filesystem>

#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/store.h"
#include "weft/extend/token_files.h"
#include "weft/ops/networks.h"

namespace weft::rows {

namespace fs = std::filesystem;

std::string index_path(const std::string& shard) {
  return fs::path(shard).replace_extension(".idx").string();
}

uint64_t hash_of(const File& file, int64_t offset, uint64_t hash) {
  std::vector<std::byte> block(kHashBlock);
  while (offset < file.size()) {
    const auto bytes =
        static_cast<size_t>(std::min(static_cast<int64_t>(kHashBlock), file.size() - offset));
    file.read(offset, std::span(block).first(bytes));
    hash = xxh3_of(std::span(block).first(bytes), hash);
    offset += static_cast<int64_t>(bytes);
  }
  return hash;
}

static IndexHeader header_of(const File& file) {
  IndexHeader header;
  if (file.size() < static_cast<int64_t>(sizeof header)) return {.magic = 0};
  file.read(0, std::as_writable_bytes(std::span(&header, 1)));
  const int64_t marks = header.has_marks ? (header.tokens + 7) / 8 : 0;
  const bool is_sane = header.tokens >= 0 && header.documents >= 0 &&
                       header.documents <= file.size() / 8 &&
                       file.size() == int64_t{sizeof header} + 8 * header.documents + marks;
  if (!is_sane || hash_of(file, sizeof header) != header.rest_hash) header.magic = 0;
  return header;
}

bool are_whole(const std::string& directory) {
  for (int number = 0;; ++number) {
    const std::string shard = (fs::path(directory) / formatted("tokens-%05d.bin", number)).string();
    if (!path_exists(shard) || !path_exists(index_path(shard))) return false;
    const IndexHeader header = header_of(File("data", index_path(shard)));
    const File file("data", shard);
    if (header.magic != IndexHeader::kMagic) return false;
    if (hash_of(file, kShardHeader * sizeof(int32_t)) != header.shard_hash) return false;
    if (header.is_last) return true;
  }
}

TokenIndex::TokenIndex(std::span<const std::string> shards, std::span<const int64_t> counts) {
  const auto has_index = [&](const std::string& shard) { return path_exists(index_path(shard)); };
  const auto with = std::ranges::find_if(shards, has_index);
  if (with == shards.end()) return;
  const auto without = std::ranges::find_if_not(shards, has_index);
  if (without != shards.end()) {
    fail("data: ", *without, " has no index ", index_path(*without), ", expected one, as ", *with,
         " has");
  }
  int64_t start = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    add(index_path(shards[i]), start, counts[i]);
    start += counts[i];
  }
}

void TokenIndex::add(const std::string& path, int64_t start, int64_t count) {
  const File file("data", path);
  const IndexHeader header = header_of(file);
  if (header.magic != IndexHeader::kMagic) {
    fail("data: the index ", path, " is damaged, expected a file of weft tokenize");
  }
  if (header.tokens != count) {
    fail("data: the index ", path, " is of ", header.tokens, " tokens, expected the ", count,
         " of its shard");
  }
  if (start > 0 && has_rows_ != (header.has_rows != 0)) {
    fail("data: ", path, " is of ", has_rows_ ? "text" : "lines of JSON",
         ", expected an index of the kind of the first");
  }
  const auto documents = static_cast<size_t>(header.documents);
  std::vector<int64_t> starts(documents);
  file.read(sizeof header, std::as_writable_bytes(std::span(starts)));
  if (!std::ranges::is_sorted(starts) ||
      (documents > 0 && (starts[0] < 0 || starts.back() >= count))) {
    fail("data: the index ", path, " has documents that do not ascend, expected some of ", count,
         " tokens");
  }
  for (const int64_t at : starts) starts_.push_back(start + at);
  // Tokens before the first document of a shard continue the last document.
  if (start == 0 && (starts_.empty() || starts_[0] > 0)) starts_.insert(starts_.begin(), 0);
  has_rows_ = header.has_rows != 0;
  has_marks_ = has_marks_ || header.has_marks;
  Shard& shard = shards_.emplace_back(Shard{start, count, {}, 0});
  if (!header.has_marks) return;
  shard.file = file;
  shard.marks = int64_t{sizeof header} + 8 * header.documents;
}

void TokenIndex::ignore(int64_t from, std::span<int64_t> targets) const {
  if (!has_marks_) return;
  std::vector<std::byte> bytes;
  auto shard =
      std::ranges::upper_bound(shards_, from, {}, [](const Shard& s) { return s.start + s.count; });
  for (; !targets.empty() && shard != shards_.end(); ++shard) {
    const int64_t first = from - shard->start;
    const int64_t count = std::min(std::ssize(targets), shard->count - first);
    if (shard->file) {
      bytes.resize(static_cast<size_t>((first + count + 7) / 8 - first / 8));
      shard->file->read(shard->marks + first / 8, bytes);
      for (int64_t i = 0; i < count; ++i) {
        const auto byte = static_cast<unsigned>(bytes[static_cast<size_t>((first % 8 + i) / 8)]);
        if (!(byte >> ((first + i) % 8) & 1)) targets[static_cast<size_t>(i)] = kIgnoredTarget;
      }
    }
    targets = targets.subspan(static_cast<size_t>(count));
    from += count;
  }
}

}  // namespace weft::rows
