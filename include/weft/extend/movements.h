// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/export.h"

namespace weft {

/// A collective step of a redistribution.
struct MovementStep {
  /// "all_gather", "reduce_scatter", "all_reduce", "all_to_all" or "exchange".
  std::string kind;
  /// Names of the axes over which it runs, joined by "+".
  std::string axes;
  /// Placements before and after, e.g. "[S(0), R]".
  std::string from, to;
  /// Bytes that this rank receives from others, and the predicted time.
  int64_t bytes = 0;
  double seconds = 0;
};

/// A redistribution that crossed ranks, or on device `meta` would have crossed them.
struct Movement {
  /// The op that asked for it, "redistribute", or "backward" for the gradient of a leaf.
  std::string what;
  /// The Context::scope in which the redistribution, or the op that it is the gradient of, was
  /// recorded.
  const void* scope = nullptr;
  bool backward = false;
  std::vector<MovementStep> steps = {};
};

/// Records the movements of the calling rank while it exists. At most one per rank at a time.
class WEFT_API MovementLog {
 public:
  MovementLog();
  ~MovementLog();
  MovementLog(const MovementLog&) = delete;
  MovementLog& operator=(const MovementLog&) = delete;

  std::vector<Movement> movements;
};

}  // namespace weft
