// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "src/comm/transport.h"
#include "src/comm/world.h"
#include "weft/error.h"

namespace weft {

/// One process's view of a world whose other processes share no memory with it.
class LoneWorld final : public World {
 public:
  LoneWorld(int ranks, std::chrono::milliseconds deadline)
      : World(ranks, deadline, ranks, std::make_shared<WorldState>(),
              std::shared_ptr<RankState[]>(new RankState[static_cast<size_t>(ranks)])) {}

  /// The rank whose process is said to be gone, or -1.
  std::atomic<int> gone{-1};

  bool is_gone(int rank) const override { return rank == gone; }
  std::string end_in_words(int) const override { return "is gone"; }
  bool shares_memory(std::span<const int>) const override { return false; }
  std::shared_ptr<MemoryGroup> group(Members members) override {
    fail("subgroup: the ranks of ", members.name, " share no memory");
  }
};

}  // namespace weft
