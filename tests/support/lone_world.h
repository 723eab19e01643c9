// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>

#include "src/comm/mpi/separate_world.h"

namespace weft {

/// One process's view of a world whose other processes share no memory with it.
class LoneWorld final : public SeparateWorld {
 public:
  LoneWorld(int ranks, std::chrono::milliseconds deadline)
      : SeparateWorld(ranks, deadline, ranks) {}

  /// The rank whose process is said to be gone, or -1.
  std::atomic<int> gone{-1};

  bool is_gone(int rank) const override { return rank == gone; }
  std::string end_in_words(int) const override { return "is gone"; }
};

}  // namespace weft
