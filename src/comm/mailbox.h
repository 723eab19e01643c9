// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "weft/dtype.h"

namespace weft {

/// A send under way: it lies in the receiver's mailbox until the receiver takes it out.
struct Letter {
  int from = 0;
  int tag = 0;
  const void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::f32;
  /// Set by the receiver when it needs the sender's memory no more.
  std::atomic<bool> received{false};
};

/// What was sent to one rank and not yet received, in the order in which it was sent.
class Mailbox {
 public:
  void put(Letter& letter) {
    const std::lock_guard lock(mutex_);
    letters_.push_back(&letter);
    changes_.fetch_add(1, std::memory_order_release);
  }
  /// The first letter from that rank with that tag, or null.
  Letter* take(int from, int tag);
  /// Takes a letter back; false when it was taken already.
  bool withdraw(const Letter& letter);
  /// Differs when something was put since.
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;
  std::vector<Letter*> letters_;
  std::atomic<uint64_t> changes_{0};
};

}  // namespace weft
