// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace weft {

inline int64_t steady_nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/// One moment by two clocks: nanoseconds of the steady clock, and since 1970.
struct Moment {
  int64_t steady = 0, wall = 0;

  /// The thread may be preempted between two clock reads; keeps the closest pair of several.
  static Moment now() {
    Moment best;
    int64_t least = INT64_MAX;
    for (int i = 0; i < 8; ++i) {
      const int64_t before = steady_nanoseconds();
      const auto wall = std::chrono::system_clock::now().time_since_epoch();
      const int64_t took = steady_nanoseconds() - before;
      if (took >= least) continue;
      least = took;
      best = {before + took / 2, wall / std::chrono::nanoseconds(1)};
    }
    return best;
  }
};

}  // namespace weft
