// SPDX-License-Identifier: Apache-2.0
#include "cli/digest.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/hash.h"

namespace weft::cli {

static constexpr int64_t kWholeBelow = int64_t{256} << 20;
static constexpr int64_t kDigestBlock = int64_t{1} << 20;
static constexpr int64_t kDigestBlocks = 64;

static int64_t size_of_file(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) fail("data: cannot read the size of ", in_quotes(path), ": ", error.message());
  return static_cast<int64_t>(size);
}

namespace {

/// Files as one sequence of bytes, read in ascending order.
class FileSequence {
 public:
  explicit FileSequence(std::span<const std::string> files) : files_(files) {
    for (const std::string& path : files) ends_.push_back(size() + size_of_file(path));
  }

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  const std::vector<int64_t>& ends() const { return ends_; }

  void read(int64_t from, std::span<std::byte> into) {
    while (!into.empty()) {
      const auto end = std::ranges::upper_bound(ends_, from);
      const auto index = static_cast<size_t>(end - ends_.begin());
      if (!open_ || opened_ != index) open_.emplace("data", files_[index]);
      opened_ = index;
      const int64_t start = index == 0 ? 0 : ends_[index - 1];
      const auto piece = into.first(std::min(into.size(), static_cast<size_t>(*end - from)));
      open_->read(from - start, piece);
      into = into.subspan(piece.size());
      from += static_cast<int64_t>(piece.size());
    }
  }

 private:
  std::span<const std::string> files_;
  /// The end of each file in the sequence.
  std::vector<int64_t> ends_;
  std::optional<File> open_;
  size_t opened_ = 0;
};

}  // namespace

uint64_t digest_of(std::span<const std::string> files) {
  FileSequence bytes(files);
  uint64_t digest = xxh3_of(std::as_bytes(std::span(bytes.ends())));
  std::vector<std::byte> block(static_cast<size_t>(std::min(bytes.size(), kDigestBlock)));
  const bool is_whole = bytes.size() <= kWholeBelow;
  const int64_t blocks =
      is_whole ? (bytes.size() + kDigestBlock - 1) / kDigestBlock : kDigestBlocks;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t from =
        is_whole ? i * kDigestBlock : i * (bytes.size() - kDigestBlock) / (kDigestBlocks - 1);
    const auto piece =
        std::span(block).first(static_cast<size_t>(std::min(kDigestBlock, bytes.size() - from)));
    bytes.read(from, piece);
    digest = xxh3_of(piece, digest);
  }
  return digest;
}

/// Returns the name of a file below the first of `given` that is a directory above it.
static std::string relative_name(const std::string& file, std::span<const std::string> given) {
  for (const std::string& path : given) {
    if (file == path || path.empty() || !file.starts_with(path)) continue;
    if (path.back() == '/') return file.substr(path.size());
    if (file[path.size()] == '/') return file.substr(path.size() + 1);
  }
  return std::filesystem::path(file).filename().string();
}

uint64_t digest_of_names(std::span<const std::string> files, std::span<const std::string> given) {
  std::string names;
  for (const std::string& file : files) names += relative_name(file, given) + '\0';
  return xxh3_of(std::as_bytes(std::span(names)));
}

}  // namespace weft::cli
