// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>

#include "src/comm/memory/memory_group.h"
#include "src/comm/transport.h"
#include "src/comm/world.h"
#include "weft/error.h"

namespace weft {

/// One process's view of a world whose other processes share no memory with it.
class SeparateWorld : public World {
 public:
  /// `here`: the ranks of this host, which share its cores.
  SeparateWorld(int ranks, std::chrono::milliseconds deadline, int here)
      : World(ranks, deadline, here, std::make_shared<WorldState>(),
              std::shared_ptr<RankState[]>(new RankState[static_cast<size_t>(ranks)])) {}

  bool shares_memory(std::span<const int>) const override { return false; }
  std::shared_ptr<MemoryGroup> group(Members members) override {
    fail("subgroup: the ranks of ", members.name,
         " are processes without common memory, expected ranks that share memory");
  }
};

}  // namespace weft
