// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "weft/warnings.h"

namespace weft {

/// Collects the warnings of all ranks for a scope.
class CollectedWarnings {
 public:
  CollectedWarnings()
      : before_(set_warning_handler([this](const std::string& sentence) {
          const std::lock_guard lock(mutex_);
          sentences_.insert(sentence);
        })) {}
  ~CollectedWarnings() { set_warning_handler(before_); }
  CollectedWarnings(const CollectedWarnings&) = delete;
  CollectedWarnings& operator=(const CollectedWarnings&) = delete;
  const std::multiset<std::string>& sentences() const { return sentences_; }

 private:
  std::mutex mutex_;
  std::multiset<std::string> sentences_;
  WarningHandler before_;
};

}  // namespace weft
