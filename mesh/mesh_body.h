// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mesh/grid.h"
#include "mesh/plan.h"
#include "weft/export.h"
#include "weft/extend/ref.h"

namespace weft {

/// Counters of a cache.
struct CacheStatistics {
  int64_t entries = 0, misses = 0, evictions = 0;
};

/// A flat hash table of handles that holds about `capacity` entries, a power of two. The lower bits
/// of the hashes choose the places. When it is full, it drops entries that were not found since the
/// last sweep and have no other owner; entries with other owners cost memory anyway and stay.
template <class T> class Cache {
 public:
  explicit Cache(size_t capacity) : capacity_(capacity), entries_(capacity * 2) {}

  template <class Matches> T* find(uint64_t hash, Matches matches) {
    for (size_t at = first(hash); entries_[at].value; at = next(at)) {
      Entry& entry = entries_[at];
      if (entry.hash != hash || !matches(*entry.value)) continue;
      entry.found = true;
      return entry.value.get();
    }
    ++statistics_.misses;
    return nullptr;
  }

  void insert(uint64_t hash, Ref<T> value) {
    if (static_cast<size_t>(statistics_.entries) >= capacity_) sweep();
    place({hash, std::move(value), true});
  }

  void clear() {
    std::vector<Entry> dropped(entries_.size());
    dropped.swap(entries_);
    statistics_.entries = 0;
  }

  const CacheStatistics& statistics() const { return statistics_; }

 private:
  struct Entry {
    uint64_t hash = 0;
    Ref<T> value;
    bool found = false;
  };

  size_t first(uint64_t hash) const { return hash & mask_; }
  size_t next(size_t at) const { return (at + 1) & mask_; }

  void place(Entry entry) {
    size_t at = first(entry.hash);
    while (entries_[at].value) at = next(at);
    entries_[at] = std::move(entry);
    ++statistics_.entries;
  }

  /// Drops entries that were not found since the last sweep; if those are too few, all that have no
  /// other owner.
  void sweep() {
    size_t kept = drop([](const Entry& entry) { return !entry.found; });
    if (kept * 4 > capacity_ * 3) kept = drop([](const Entry&) { return true; });
    if (kept * 4 > capacity_ * 3) capacity_ *= 2;
    std::vector<Entry> before(capacity_ * 2);
    before.swap(entries_);
    mask_ = entries_.size() - 1;
    statistics_.entries = 0;
    for (Entry& entry : before) {
      if (entry.value) place(std::move(entry));
    }
  }

  template <class Unwanted> size_t drop(Unwanted unwanted) {
    size_t kept = 0;
    for (Entry& entry : entries_) {
      if (!entry.value) continue;
      if (entry.value->use_count() == 1 && unwanted(entry)) {
        entry.value = {};
        ++statistics_.evictions;
      } else {
        entry.found = false;
        ++kept;
      }
    }
    return kept;
  }

  size_t capacity_;
  std::vector<Entry> entries_;
  size_t mask_ = entries_.size() - 1;
  CacheStatistics statistics_;
};

struct Route;

/// The bounded tables of one mesh on one rank, owned by the DeviceMesh handles. Destroying the last
/// handle empties the tables; tensors that outlive it keep only the MeshGrid.
class MeshBody : public std::enable_shared_from_this<MeshBody>, NotCopied {
 public:
  explicit MeshBody(std::shared_ptr<MeshGrid> grid);
  ~MeshBody();

  MeshGrid& grid() const { return *grid_; }

  Cache<Layout> layouts;
  Cache<Plan> plans;
  /// The routes of op calls; ops/ stores them here.
  std::shared_ptr<Cache<Route>> routes;

 private:
  std::shared_ptr<MeshGrid> grid_;
};

/// Makes new tables for a grid whose last DeviceMesh is gone but whose tensors are used again. The
/// calling thread keeps them until it ends or makes a mesh.
MeshBody& adopted(MeshGrid& grid);

/// Returns the tables of a sharding's mesh.
inline MeshBody& body_of(const Sharding& sharding) {
  MeshGrid& grid = *sharding.body()->grid;
  if (!grid.body) [[unlikely]]
    return adopted(grid);
  return *grid.body;
}

/// The same, for a DeviceMesh to own.
std::shared_ptr<MeshBody> shared_body_of(const Sharding& sharding);

/// "mesh(dp=2, tp=4)".
std::string printed(std::span<const MeshAxis> axes);
/// "[S(0), R]", with the order of the cuts where it differs from mesh order.
std::string placements_in_words(const Sharding& sharding);

/// Returns the tables of a mesh: those of an existing grid if every rank has one with these ranks
/// and axes, new ones otherwise. Collective.
std::shared_ptr<MeshBody> mesh_body_for(const Communicator& ranks, std::vector<MeshAxis> axes);

}  // namespace weft
