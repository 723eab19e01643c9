// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/extend/file.h"

namespace weft::cli {

/// Files that are read at any place and for as long as a run lasts; the few that were read last
/// are open. Several threads may read at once.
class KeptFiles {
 public:
  /// Adds a file; returns its number.
  size_t add(const File& file);

  /// Fills `into` with the bytes from `offset` on. std::runtime_error names the file and the offset
  /// when it has become shorter, another file has its name meanwhile, or it cannot be read.
  void read(size_t number, int64_t offset, std::span<std::byte> into);

 private:
  struct Kept {
    std::string path;
    int64_t bytes;
    std::pair<uint64_t, uint64_t> identity;
    /// Open while this has a value.
    std::optional<File> file;
    uint64_t last_read;
  };
  File opened(size_t number, int64_t offset);
  void close_one_too_many();

  std::mutex mutex_;
  std::vector<Kept> all_;
  size_t open_ = 0;
  uint64_t reads_ = 0;
};

}  // namespace weft::cli
