// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/comm/memory/memory_group.h"
#include "src/comm/wait/waitable.h"

namespace weft {

/// A pending call of a rank that sees the memory of the others. Only its own rank advances it.
class PendingWork : public Waitable {
 public:
  PendingWork(const MemoryGroup& group, int rank, uint64_t sequence)
      : Waitable(*group.world, group, rank, sequence) {
    link();
  }

 protected:
  const MemoryGroup& group() const { return static_cast<const MemoryGroup&>(members_); }
  /// Yields until `uses()` is false or the rank has ended.
  template <class Uses> void wait_while(int rank, Uses uses) const noexcept {
    const int other = members_.world_rank(rank);
    const auto is_over = [&] { return !uses() || world().has_ended(other); };
    while (!wait_until(world().spins(), world().patience(), is_over))
      world().on_stuck_reader(other);
  }
};

}  // namespace weft
