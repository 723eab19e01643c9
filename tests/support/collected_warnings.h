// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "weft/error.h"

namespace weft {

/// Collects the warnings of all ranks for a scope, and passes each to `also`.
class CollectedWarnings {
 public:
  explicit CollectedWarnings(WarningHandler also = {})
      : before_(set_warning_handler([this, also = std::move(also)](const std::string& sentence) {
          const std::lock_guard lock(mutex_);
          sentences_.insert(sentence);
          if (also) also(sentence);
        })) {}
  ~CollectedWarnings() { set_warning_handler(before_); }
  CollectedWarnings(const CollectedWarnings&) = delete;
  CollectedWarnings& operator=(const CollectedWarnings&) = delete;
  const std::multiset<std::string>& sentences() const { return sentences_; }
  size_t size() const { return sentences_.size(); }
  /// The first in alphabetical order; "" when there are none.
  std::string first() const { return sentences_.empty() ? "" : *sentences_.begin(); }

 private:
  std::mutex mutex_;
  std::multiset<std::string> sentences_;
  WarningHandler before_;
};

}  // namespace weft
