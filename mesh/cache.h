// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "weft/extend/ref.h"

namespace weft {

/// Counters of a cache.
struct CacheStatistics {
  int64_t entries = 0;
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t evictions = 0;
};

/// A flat hash table of handles that holds about `capacity` entries. When it is full, it drops
/// entries that were not found since the last sweep and have no other owner; entries with other
/// owners cost memory anyway and stay.
template <class T>
class Cache {
 public:
  explicit Cache(size_t capacity) : capacity_(capacity), slots_(capacity * 2) {}

  template <class Matches>
  T* find(uint64_t hash, Matches matches) {
    for (size_t at = first(hash); slots_[at].entry; at = next(at)) {
      Slot& slot = slots_[at];
      if (slot.hash != hash || !matches(*slot.entry)) continue;
      slot.found = true;
      ++statistics_.hits;
      return slot.entry.get();
    }
    ++statistics_.misses;
    return nullptr;
  }

  void insert(uint64_t hash, Ref<T> entry) {
    if (static_cast<size_t>(statistics_.entries) >= capacity_) sweep();
    place({hash, std::move(entry), true});
  }

  void clear() {
    std::vector<Slot> dropped(slots_.size());
    dropped.swap(slots_);
    statistics_.entries = 0;
  }

  const CacheStatistics& statistics() const { return statistics_; }

 private:
  struct Slot {
    uint64_t hash = 0;
    Ref<T> entry;
    bool found = false;
  };

  size_t first(uint64_t hash) const { return (hash * 0x9e3779b97f4a7c15ull >> 20) % slots_.size(); }
  size_t next(size_t at) const { return at + 1 == slots_.size() ? 0 : at + 1; }

  void place(Slot slot) {
    size_t at = first(slot.hash);
    while (slots_[at].entry) at = next(at);
    slots_[at] = std::move(slot);
    ++statistics_.entries;
  }

  /// Drops entries that were not found since the last sweep; if those are too few, all that have no
  /// other owner.
  void sweep() {
    size_t kept = drop([](const Slot& slot) { return !slot.found; });
    if (kept * 4 > capacity_ * 3) kept = drop([](const Slot&) { return true; });
    if (kept * 4 > capacity_ * 3) {
      capacity_ *= 2;
      rehash(capacity_ * 2);
    } else {
      rehash(slots_.size());
    }
  }

  template <class Unwanted>
  size_t drop(Unwanted unwanted) {
    size_t kept = 0;
    for (Slot& slot : slots_) {
      if (!slot.entry) continue;
      if (slot.entry->use_count() == 1 && unwanted(slot)) {
        slot.entry = {};
        ++statistics_.evictions;
      } else {
        slot.found = false;
        ++kept;
      }
    }
    return kept;
  }

  void rehash(size_t size) {
    std::vector<Slot> before(size);
    before.swap(slots_);
    statistics_.entries = 0;
    for (Slot& slot : before) {
      if (slot.entry) place(std::move(slot));
    }
  }

  size_t capacity_;
  std::vector<Slot> slots_;
  CacheStatistics statistics_;
};

}  // namespace weft
