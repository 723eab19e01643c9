// SPDX-License-Identifier: Apache-2.0
#include "cli/kept_files.h"

#include <algorithm>

#include "weft/error.h"

namespace weft::cli {

/// A process has 1,024 descriptors by default, shared by all of its ranks.
static constexpr size_t kMostOpen = 64;

size_t KeptFiles::add(const File& file) {
  const std::lock_guard lock(mutex_);
  close_one_too_many();
  all_.push_back({file.path(), file.size(), file.identity(), file, ++reads_});
  ++open_;
  return all_.size() - 1;
}

/// Closes the file that was read the longest ago, if no more may be open.
void KeptFiles::close_one_too_many() {
  if (open_ < kMostOpen) return;
  const auto time_of = [](const Kept& kept) { return kept.file ? kept.last_read : UINT64_MAX; };
  std::ranges::min_element(all_, {}, time_of)->file.reset();
  --open_;
}

File KeptFiles::opened(size_t number, int64_t offset) {
  const std::lock_guard lock(mutex_);
  Kept& kept = all_[number];
  kept.last_read = ++reads_;
  if (kept.file) return *kept.file;
  close_one_too_many();
  std::optional<File> again;
  try {
    again.emplace("data", kept.path);
  } catch (const std::invalid_argument& error) {  // the path was right when the run began
    fail_call("open", error.what(), ", wanted from byte ", offset, " on");
  }
  if (again->size() != kept.bytes || again->identity() != kept.identity) {
    fail_call("open", "data: ", kept.path, ", wanted from byte ", offset,
              " on, is another file of ", again->size(), " bytes, expected the one of ", kept.bytes,
              " bytes that was there when the run began");
  }
  kept.file = again;
  ++open_;
  return *again;
}

void KeptFiles::read(size_t number, int64_t offset, std::span<std::byte> into) {
  opened(number, offset).read(offset, into);
}

}  // namespace weft::cli
