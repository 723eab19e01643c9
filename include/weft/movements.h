// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/export.h"

namespace weft {

/// A step in which ranks take part together.
struct MovementStep {
  /// "all_gather", "reduce_scatter", "all_reduce", "all_to_all" or "exchange".
  std::string kind;
  /// The axes over which it runs, joined by "+".
  std::string axes;
  /// Placements before and after, "[S(0), R]".
  std::string from, to;
  /// Received by this rank from others, and the predicted time.
  int64_t bytes = 0;
  double seconds = 0;
};

/// A redistribution that crossed ranks; on device `meta`, one that would have.
struct Movement {
  /// The op that asked for it, "redistribute", or "backward" for the gradient of a leaf.
  std::string what;
  /// Context::scope: that in which it, or what it is the gradient of, was recorded.
  const void* scope = nullptr;
  bool backward = false;
  std::vector<MovementStep> steps = {};
};

/// Writes down the movements of the calling rank while it lives. One at a time.
class WEFT_API MovementLog {
 public:
  MovementLog();
  ~MovementLog();
  MovementLog(const MovementLog&) = delete;
  MovementLog& operator=(const MovementLog&) = delete;

  std::vector<Movement> movements;
};

}  // namespace weft
