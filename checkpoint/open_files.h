// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/source.h"
#include "weft/extend/store.h"

namespace weft {

/// Opens the files of a directory in order: those of an object store a few ahead, in parallel.
class OpenFiles {
 public:
  OpenFiles(const std::string& directory, const std::vector<std::string>& names)
      : directory_(directory), names_(names) {}

  std::shared_ptr<const OpenedFile> open(size_t i) const {
    if (!is_object_path(directory_)) return opened(i);
    if (i % kAhead == 0) {
      ahead_.clear();
      const size_t count = std::min(kAhead, names_.size() - i);
      for (size_t j = 0; j < count; ++j) {
        ahead_.push_back(std::async(std::launch::async, [this, i, j] { return opened(i + j); }));
      }
    }
    return ahead_[i % kAhead].get();
  }

 private:
  static constexpr size_t kAhead = 16;

  std::shared_ptr<const OpenedFile> opened(size_t i) const {
    return open_rank_file(directory_ + "/" + names_[i]);
  }

  const std::string& directory_;
  const std::vector<std::string>& names_;
  mutable std::vector<std::future<std::shared_ptr<const OpenedFile>>> ahead_;
};

}  // namespace weft
