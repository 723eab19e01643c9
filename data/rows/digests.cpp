// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <optional>

#include "weft/extend/hash.h"
#include "weft/extend/token_files.h"

namespace weft {

static constexpr int64_t kWholeBelow = int64_t{256} << 20;
static constexpr int64_t kDigestBlock = int64_t{1} << 20;
static constexpr int64_t kDigestBlocks = 64;

uint64_t digest_of(std::span<const std::string> files) {
  // The files are one sequence of bytes, each of which ends here.
  std::vector<int64_t> ends;
  int64_t size = 0;
  for (const std::string& path : files) ends.push_back(size += File("data", path).size());
  uint64_t digest = xxh3_of(std::as_bytes(std::span(ends)));
  std::vector<std::byte> block(static_cast<size_t>(std::min(size, kDigestBlock)));
  const bool is_whole = size <= kWholeBelow;
  const int64_t blocks = is_whole ? (size + kDigestBlock - 1) / kDigestBlock : kDigestBlocks;
  std::optional<File> open;
  size_t opened = 0;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first =
        is_whole ? i * kDigestBlock : i * (size - kDigestBlock) / (kDigestBlocks - 1);
    const int64_t last = std::min(size, first + kDigestBlock);
    for (int64_t from = first; from < last;) {
      const auto index = static_cast<size_t>(std::ranges::upper_bound(ends, from) - ends.begin());
      if (!open || opened != index) open.emplace("data", files[index]);
      opened = index;
      const int64_t start = index == 0 ? 0 : ends[index - 1];
      const int64_t to = std::min(last, ends[index]);
      open->read(from - start, std::span(block).subspan(static_cast<size_t>(from - first),
                                                        static_cast<size_t>(to - from)));
      from = to;
    }
    digest = xxh3_of(std::span(block).first(static_cast<size_t>(last - first)), digest);
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

}  // namespace weft
